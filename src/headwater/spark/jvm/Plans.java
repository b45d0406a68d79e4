package headwater;

import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.CTESubstitution$;
import org.apache.spark.sql.catalyst.analysis.RelationTimeTravel;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableValuedFunction;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import scala.runtime.AbstractPartialFunction;

/** Finding the tables that a parsed statement names, and putting plans in their places. */
public class Plans {
    /** The statement with its WITH clauses put in place, so that what is left to look up are tables and views. */
    public static LogicalPlan withoutNamedQueries(LogicalPlan plan) {
        return CTESubstitution$.MODULE$.apply(plan);
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
                || node instanceof UnresolvedTableValuedFunction;
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
}
