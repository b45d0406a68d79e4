package headwater;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;

/** What a MERGE asks of its two sides: the table on the left of a join, the source on the right. */
public class Merges {
    /**
     * The columns whose equality joins the two, as JSON: {"equal": [[2, 0], ...], "whole": true}. Columns are places,
     * the table's first; "whole" says whether the condition is nothing but that.
     */
    public static String equalities(LogicalPlan analyzed) {
        Join join = (Join) analyzed;
        StringBuilder out = new StringBuilder();
        boolean whole = !join.condition().isEmpty()
                && equal((Expression) join.condition().get(), places(join.left()), places(join.right()), out);
        return "{\"equal\":[" + out + "],\"whole\":" + whole + "}";
    }

    private static boolean equal(Expression condition, Map mine, Map theirs, StringBuilder out) {
        if (condition instanceof And) {
            boolean left = equal(((And) condition).left(), mine, theirs, out);
            return equal(((And) condition).right(), mine, theirs, out) && left;
        }
        if (!(condition instanceof EqualTo)) return false;
        Expression one = ((EqualTo) condition).left();
        Expression other = ((EqualTo) condition).right();
        if (!(one instanceof AttributeReference) || !(other instanceof AttributeReference)) return false;
        Object own = mine.get(id(one)) == null ? mine.get(id(other)) : mine.get(id(one));
        Object given = theirs.get(id(other)) == null ? theirs.get(id(one)) : theirs.get(id(other));
        if (own == null || given == null) return false;
        out.append(out.length() == 0 ? "[" : ",[").append(own).append(",").append(given).append("]");
        return true;
    }

    /**
     * What the selection above a join needs of the table, as a JSON list of places; null if it is more than
     * selections right above it.
     */
    public static String needed(LogicalPlan analyzed) {
        List above = new ArrayList();
        LogicalPlan plan = analyzed;
        while (plan instanceof Project) {
            above.add(plan);
            plan = ((Project) plan).child();
        }
        if (!(plan instanceof Join) || above.isEmpty()) return null;
        Map asked = new HashMap();
        for (int i = 0; i < above.size(); i++) {
            Iterator values = list(((Project) above.get(i)).projectList()).iterator();
            while (values.hasNext()) {
                Expression value = (Expression) values.next();
                // Of what a selection only hands on, the one above says whether it is needed.
                boolean used = i == 0 || value instanceof Alias && asked.containsKey(id(((Alias) value).toAttribute()));
                if (!used) continue;
                Iterator references = list(value.references().toSeq()).iterator();
                while (references.hasNext()) asked.put(id((Expression) references.next()), Boolean.TRUE);
            }
        }
        Map mine = places(((Join) plan).left());
        TreeSet found = new TreeSet();
        Iterator each = asked.keySet().iterator();
        while (each.hasNext()) {
            Object place = mine.get(each.next());
            if (place != null) found.add(place);
        }
        return found.toString();
    }

    /** The rows of a plan under other names, the first {@code count} columns as the table's, the others as the source's. */
    public static Object joined(
            SparkSession session, LogicalPlan analyzed, String names, int count, String table, String source)
            throws Exception {
        String[] given = (String[]) new ObjectMapper().readValue(names, String[].class);
        List columns = new ArrayList();
        Iterator each = list(analyzed.output()).iterator();
        for (int i = 0; each.hasNext(); i++) {
            List alias = new ArrayList();
            alias.add(i < count ? table : source);
            columns.add(((Attribute) each.next()).withName(given[i]).withQualifier(seq(alias)));
        }
        return Dataset.ofRows(session, new Project(seq(columns), analyzed));
    }

    private static Map places(LogicalPlan side) {
        Map found = new HashMap();
        Iterator each = list(side.output()).iterator();
        for (int i = 0; each.hasNext(); i++) found.put(id((Expression) each.next()), new Integer(i));
        return found;
    }

    private static Object id(Expression attribute) { return ((Attribute) attribute).exprId(); }

    private static List list(scala.collection.Seq items) {
        return scala.jdk.javaapi.CollectionConverters.asJava(items);
    }

    private static scala.collection.immutable.Seq seq(List items) {
        return scala.jdk.javaapi.CollectionConverters.asScala(items).toSeq();
    }
}
