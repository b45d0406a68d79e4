package headwater;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.StartsWith;
import org.apache.spark.sql.types.*;
import scala.collection.immutable.Seq;

/**
 * Conditions that Spark pushed down to a scan, as JSON for the lake's catalog.
 *
 * A column is its field id, a constant the value as Spark holds it (days, microseconds), so that nothing depends
 * on names, time zones or the quoting of SQL. What is not understood is {"op": "?"}: any row may match.
 */
public class Filters {
    private static final String UNKNOWN = "{\"op\":\"?\"}";

    public static String json(Seq filters) {
        StringBuilder out = new StringBuilder("[");
        Iterator all = scala.jdk.javaapi.CollectionConverters.asJava(filters).iterator();
        while (all.hasNext()) {
            if (out.length() > 1) out.append(",");
            out.append(condition((Expression) all.next()));
        }
        return out.append("]").toString();
    }

    private static String condition(Expression e) {
        if (e instanceof And) return both("and", ((And) e).left(), ((And) e).right());
        if (e instanceof Or) return both("or", ((Or) e).left(), ((Or) e).right());
        if (e instanceof Not) return "{\"op\":\"not\",\"parts\":[" + condition(((Not) e).child()) + "]}";
        if (e instanceof EqualTo) return comparison("=", "=", ((EqualTo) e).left(), ((EqualTo) e).right());
        if (e instanceof EqualNullSafe)
            return comparison("<=>", "<=>", ((EqualNullSafe) e).left(), ((EqualNullSafe) e).right());
        if (e instanceof GreaterThan)
            return comparison(">", "<", ((GreaterThan) e).left(), ((GreaterThan) e).right());
        if (e instanceof GreaterThanOrEqual)
            return comparison(">=", "<=", ((GreaterThanOrEqual) e).left(), ((GreaterThanOrEqual) e).right());
        if (e instanceof LessThan) return comparison("<", ">", ((LessThan) e).left(), ((LessThan) e).right());
        if (e instanceof LessThanOrEqual)
            return comparison("<=", ">=", ((LessThanOrEqual) e).left(), ((LessThanOrEqual) e).right());
        if (e instanceof StartsWith)
            return comparison("starts", null, ((StartsWith) e).left(), ((StartsWith) e).right());
        if (e instanceof IsNull) return unary("null", ((IsNull) e).child());
        if (e instanceof IsNotNull) return unary("notnull", ((IsNotNull) e).child());
        if (e instanceof In) {
            List values = new ArrayList();
            Iterator list = scala.jdk.javaapi.CollectionConverters.asJava(((In) e).list()).iterator();
            while (list.hasNext()) {
                Object item = list.next();
                if (!(item instanceof Literal)) return UNKNOWN;
                values.add(((Literal) item).value());
            }
            return in(((In) e).value(), values);
        }
        if (e instanceof InSet) {
            List values = new ArrayList();
            Iterator set = scala.jdk.javaapi.CollectionConverters.asJava(((InSet) e).hset()).iterator();
            while (set.hasNext()) values.add(set.next());
            return in(((InSet) e).child(), values);
        }
        if (e instanceof AttributeReference && e.dataType() instanceof BooleanType) {
            Long id = column(e);
            return id == null ? UNKNOWN : "{\"op\":\"=\",\"column\":" + id + ",\"type\":\"boolean\",\"value\":true}";
        }
        return UNKNOWN;
    }

    private static String both(String op, Expression left, Expression right) {
        return "{\"op\":\"" + op + "\",\"parts\":[" + condition(left) + "," + condition(right) + "]}";
    }

    private static String unary(String op, Expression child) {
        Long id = column(child);
        return id == null ? UNKNOWN : "{\"op\":\"" + op + "\",\"column\":" + id + "}";
    }

    private static String comparison(String op, String flipped, Expression left, Expression right) {
        if (left instanceof Literal && flipped != null) return comparison(flipped, null, right, left);
        Long id = column(left);
        if (id == null || !(right instanceof Literal)) return UNKNOWN;
        String value = value(((Literal) right).value(), left.dataType());
        if (value == null || !right.dataType().equals(left.dataType())) return UNKNOWN;
        return head(op, id, left.dataType()) + ",\"value\":" + value + "}";
    }

    private static String in(Expression child, List values) {
        Long id = column(child);
        if (id == null || values.size() > 10000) return UNKNOWN;
        StringBuilder out = new StringBuilder(head("in", id, child.dataType())).append(",\"values\":[");
        for (int i = 0; i < values.size(); i++) {
            String value = value(values.get(i), child.dataType());
            if (value == null) return UNKNOWN;
            out.append(i == 0 ? "" : ",").append(value);
        }
        return out.append("]}").toString();
    }

    private static String head(String op, Long id, DataType type) {
        return "{\"op\":\"" + op + "\",\"column\":" + id + ",\"type\":\"" + type.typeName() + "\"";
    }

    /** The field id of a column or of a field inside a struct; null for anything else. */
    private static Long column(Expression e) {
        Metadata metadata = null;
        if (e instanceof AttributeReference) {
            metadata = ((AttributeReference) e).metadata();
        } else if (e instanceof GetStructField) {
            GetStructField field = (GetStructField) e;
            if (column(field.child()) == null) return null;
            metadata = ((StructType) field.child().dataType()).fields()[field.ordinal()].metadata();
        }
        if (metadata == null || !metadata.contains("parquet.field.id")) return null;
        return new Long(metadata.getLong("parquet.field.id"));
    }

    private static String value(Object value, DataType type) {
        if (value == null) return "null";
        if (type instanceof BooleanType || type instanceof ByteType || type instanceof ShortType
                || type instanceof IntegerType || type instanceof LongType || type instanceof DateType
                || type instanceof TimestampType || type instanceof TimestampNTZType) {
            return value.toString();
        }
        if (type instanceof FloatType || type instanceof DoubleType || type instanceof DecimalType) {
            return "\"" + value + "\"";
        }
        if (type instanceof StringType && ((StringType) type).isUTF8BinaryCollation()) return text(value.toString());
        return null;
    }

    static String text(String value) {
        StringBuilder out = new StringBuilder("\"");
        for (int i = 0; i < value.length(); i++) {
            char c = value.charAt(i);
            if (c == '"' || c == '\\') out.append('\\').append(c);
            else if (c < 32 || c > 126) out.append("\\u").append(hex(c));
            else out.append(c);
        }
        return out.append("\"").toString();
    }

    private static String hex(char c) {
        String digits = Integer.toHexString(c);
        return "0000".substring(digits.length()) + digits;
    }
}
