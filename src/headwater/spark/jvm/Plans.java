package headwater;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.CTESubstitution$;
import org.apache.spark.sql.catalyst.analysis.RelationChanges;
import org.apache.spark.sql.catalyst.analysis.RelationTimeTravel;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.analysis.UnresolvedInlineTable;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableValuedFunction;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.ConcatWs;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IntegralDivide;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression$;
import org.apache.spark.sql.catalyst.expressions.SubtractDates;
import org.apache.spark.sql.catalyst.expressions.SubtractTimestamps;
import org.apache.spark.sql.catalyst.expressions.TruncTimestamp;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.types.*;
import scala.runtime.AbstractPartialFunction;

/** Finding the tables that a parsed statement names, and putting plans in their places. */
public class Plans {
    /** The statement with its WITH clauses put in place, so that what is left to look up are tables and views. */
    public static LogicalPlan withoutNamedQueries(LogicalPlan plan) {
        return CTESubstitution$.MODULE$.apply(plan);
    }

    /** The rows of expressions, a JSON list of texts, over those of a plan. */
    public static Object selected(Dataset frame, String texts) throws Exception {
        return frame.selectExpr((String[]) new ObjectMapper().readValue(texts, String[].class));
    }

    /** Every relation that is not known yet: names, names at an older version, table functions. */
    public static List unknown(LogicalPlan plan) {
        final List found = new ArrayList();
        plan.transformDownWithSubqueries(new AbstractPartialFunction() {
            public boolean isDefinedAt(Object node) { return lookedUp(node); }
            public Object applyOrElse(Object node, scala.Function1 other) {
                if (!lookedUp(node)) return other.apply(node);
                found.add(node);
                return node;
            }
        });
        return found;
    }

    /** The conditions that Spark would push down to the scan below a plan, as JSON. */
    public static String conditions(LogicalPlan optimized) {
        final List found = new ArrayList();
        optimized.foreach(new scala.runtime.AbstractFunction1() {
            public Object apply(Object node) {
                if (node instanceof Filter) found.add(((Filter) node).condition());
                return scala.runtime.BoxedUnit.UNIT;
            }
        });
        return Filters.json(scala.jdk.javaapi.CollectionConverters.asScala(found).toSeq());
    }

    private static boolean lookedUp(Object node) {
        return node instanceof UnresolvedRelation || node instanceof RelationTimeTravel
                || node instanceof RelationChanges || node instanceof UnresolvedTableValuedFunction;
    }

    /** The plan with nodes replaced; {@code nodes} and {@code replacements} go together by their places. */
    public static LogicalPlan replaced(LogicalPlan plan, List nodes, List replacements) {
        final Map known = new IdentityHashMap();
        for (int i = 0; i < nodes.size(); i++) known.put(nodes.get(i), replacements.get(i));
        return (LogicalPlan) plan.transformDownWithSubqueries(new AbstractPartialFunction() {
            public boolean isDefinedAt(Object node) { return known.containsKey(node); }
            public Object applyOrElse(Object node, scala.Function1 other) {
                Object found = known.get(node);
                return found == null ? other.apply(node) : found;
            }
        });
    }

    /** The plan with the relations of certain names replaced by the plans of these, which are analysed already. */
    public static LogicalPlan over(LogicalPlan plan, final Map frames) {
        return (LogicalPlan) plan.transformDownWithSubqueries(new AbstractPartialFunction() {
            public boolean isDefinedAt(Object node) { return node instanceof UnresolvedRelation; }
            public Object applyOrElse(Object node, scala.Function1 other) {
                if (!(node instanceof UnresolvedRelation)) return other.apply(node);
                Object found = frames.get(((UnresolvedRelation) node).multipartIdentifier().head());
                if (found == null) return other.apply(node);
                return ((org.apache.spark.sql.classic.Dataset) found).queryExecution().analyzed();
            }
        });
    }

    /** Rows of one Arrow batch (none, if it has no bytes), held by the plan itself. */
    public static Object local(SparkSession spark, byte[] batch, String schema) {
        List batches = new ArrayList();
        if (batch.length > 0) batches.add(batch);
        return ArrowConverters$.MODULE$.toDataFrame(
            scala.jdk.javaapi.CollectionConverters.asScala(batches.iterator()),
            (StructType) DataType.fromJson(schema),
            (org.apache.spark.sql.classic.SparkSession) spark,
            "UTC", false, false);
    }

    /** The parts of a condition that ask no other table, or null where there are none. */
    public static Expression withoutSubqueries(Expression condition) {
        if (condition instanceof And) {
            Expression left = withoutSubqueries(((And) condition).left());
            Expression right = withoutSubqueries(((And) condition).right());
            if (left == null) return right;
            return right == null ? left : new And(left, right);
        }
        return SubqueryExpression$.MODULE$.hasSubquery(condition) ? null : condition;
    }

    /**
     * The expression with columns named by {@code alias}: those that the long name {@code prefix} stands before, and
     * those without any qualifier that are among {@code columns} (in lower case).
     */
    public static Expression qualified(Expression expression, final String alias, final List prefix, final List columns) {
        return (Expression) expression.transformDown(new AbstractPartialFunction() {
            public boolean isDefinedAt(Object node) { return node instanceof UnresolvedAttribute; }
            public Object applyOrElse(Object node, scala.Function1 other) {
                if (!(node instanceof UnresolvedAttribute)) return other.apply(node);
                List parts = new ArrayList(list(((UnresolvedAttribute) node).nameParts()));
                List renamed = new ArrayList();
                renamed.add(alias);
                if (startsWith(parts, prefix)) renamed.addAll(parts.subList(prefix.size(), parts.size()));
                else if (columns.contains(parts.get(0).toString().toLowerCase())) renamed.addAll(parts);
                else return node;
                return new UnresolvedAttribute(seq(renamed));
            }
        });
    }

    /** The rows of an INSERT with the word DEFAULT replaced by the column's default. */
    public static LogicalPlan withDefaults(LogicalPlan query, List defaults) {
        if (query instanceof UnresolvedInlineTable) {
            UnresolvedInlineTable table = (UnresolvedInlineTable) query;
            List rows = new ArrayList();
            java.util.Iterator each = list(table.rows()).iterator();
            while (each.hasNext()) rows.add(seq(defaulted(list((scala.collection.Seq) each.next()), defaults, false)));
            return new UnresolvedInlineTable(table.names(), seq(rows));
        }
        if (query instanceof Project) {
            Project project = (Project) query;
            return new Project(seq(defaulted(list(project.projectList()), defaults, true)), project.child());
        }
        return query;
    }

    private static List defaulted(List values, List defaults, boolean named) {
        List found = new ArrayList();
        for (int i = 0; i < values.size(); i++) {
            Object value = values.get(i);
            Object word = value instanceof Alias ? ((Alias) value).child() : value;
            if (i < defaults.size() && defaults.get(i) != null && isDefault(word)) {
                Expression given = (Expression) defaults.get(i);
                value = named ? new org.apache.spark.sql.catalyst.analysis.UnresolvedAlias(given, scala.Option.empty())
                        : given;
            }
            found.add(value);
        }
        return found;
    }

    /** Whether a SELECT list asks EXISTS or IN of another table. */
    public static boolean asksInProjection(LogicalPlan plan) {
        final boolean[] found = new boolean[1];
        plan.foreachWithSubqueries(new scala.runtime.AbstractFunction1() {
            public Object apply(Object node) {
                if (node instanceof Project) {
                    java.util.Iterator values = list(((Project) node).projectList()).iterator();
                    while (values.hasNext()) {
                        Expression value = (Expression) values.next();
                        found[0] |= SubqueryExpression$.MODULE$.hasInOrCorrelatedExistsSubquery(value);
                    }
                }
                return scala.runtime.BoxedUnit.UNIT;
            }
        });
        return found[0];
    }

    /** Whether an expression is the bare word DEFAULT. */
    public static boolean isDefault(Object value) {
        if (!(value instanceof UnresolvedAttribute)) return false;
        List parts = list(((UnresolvedAttribute) value).nameParts());
        return parts.size() == 1 && "default".equalsIgnoreCase(parts.get(0).toString());
    }

    /**
     * Expressions of a view's own plan that DuckDB computes otherwise: what depends on types and so cannot be seen in
     * the view's text. Tables and other views, which bear the lake's name, are not looked into.
     */
    public static List computedOtherwise(LogicalPlan plan) {
        List found = new ArrayList();
        lookFor(plan, found);
        return found;
    }

    private static void lookFor(LogicalPlan plan, final List found) {
        if (plan instanceof SubqueryAlias) {
            List qualifier = list(((SubqueryAlias) plan).identifier().qualifier());
            if (!qualifier.isEmpty()) return;
        }
        java.util.Iterator expressions = list(plan.expressions()).iterator();
        while (expressions.hasNext()) {
            ((Expression) expressions.next()).foreach(new scala.runtime.AbstractFunction1() {
                public Object apply(Object node) {
                    if (isOtherwise(node)) found.add(((Expression) node).sql());
                    if (node instanceof PlanExpression) lookFor((LogicalPlan) ((PlanExpression) node).plan(), found);
                    return scala.runtime.BoxedUnit.UNIT;
                }
            });
        }
        java.util.Iterator children = list(plan.children()).iterator();
        while (children.hasNext()) lookFor((LogicalPlan) children.next(), found);
    }

    private static boolean isOtherwise(Object node) {
        if (node instanceof SubtractDates || node instanceof SubtractTimestamps) return true;
        if (node instanceof TruncTimestamp) {
            Expression moment = ((TruncTimestamp) node).timestamp();
            return !(moment instanceof Cast) || ((Cast) moment).child().dataType() instanceof StringType;
        }
        if (node instanceof ConcatWs) {
            java.util.Iterator parts = list(((ConcatWs) node).children()).iterator();
            while (parts.hasNext()) if (((Expression) parts.next()).dataType() instanceof ArrayType) return true;
            return false;
        }
        if (node instanceof IntegralDivide) return !(((IntegralDivide) node).left().dataType() instanceof IntegralType);
        if (!(node instanceof Cast)) return false;
        DataType from = ((Cast) node).child().dataType();
        DataType to = ((Cast) node).dataType();
        // A text that is no value of the type is NULL for both, but they do not agree on which texts are.
        if (from instanceof StringType && "TRY".equals(((Cast) node).evalMode().toString())) return true;
        if (to instanceof IntegralType) return from instanceof FractionalType || from instanceof TimestampType;
        if (to instanceof StringType) {
            return from instanceof FloatType || from instanceof DoubleType || from instanceof TimestampType
                    || from instanceof BinaryType || from instanceof ArrayType || from instanceof StructType
                    || from instanceof MapType;
        }
        if (to instanceof DecimalType) return from instanceof FloatType || from instanceof DoubleType;
        return to instanceof BooleanType && from instanceof StringType;
    }

    private static boolean startsWith(List parts, List prefix) {
        if (prefix.isEmpty() || parts.size() <= prefix.size()) return false;
        for (int i = 0; i < prefix.size(); i++) {
            if (!prefix.get(i).toString().equalsIgnoreCase(parts.get(i).toString())) return false;
        }
        return true;
    }

    private static List list(scala.collection.Seq items) {
        return scala.jdk.javaapi.CollectionConverters.asJava(items);
    }

    private static scala.collection.immutable.Seq seq(List items) {
        return scala.jdk.javaapi.CollectionConverters.asScala(items).toSeq();
    }
}
