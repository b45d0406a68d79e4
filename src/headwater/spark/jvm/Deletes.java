package headwater;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeArrayData;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.types.DataTypeUtils$;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.*;
import scala.runtime.AbstractPartialFunction;

/** Deleted rows as an array of words that a condition on each row looks into. */
public class Deletes {
    /**
     * A condition, as Spark's SQL has it, in which the column {@code name} stands for the array. That is a subquery
     * of one row: Spark puts its result into the generated code, and does not print it with every plan.
     */
    public static Object condition(SparkSession session, String text, final String name, byte[] bits)
            throws Exception {
        long[] words = new long[bits.length / 8];
        ByteBuffer.wrap(bits).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer().get(words);
        List fields = new ArrayList();
        fields.add(DataTypeUtils$.MODULE$.toAttribute(
                new StructField(name, new ArrayType(DataTypes.LongType, false), false, Metadata.empty())));
        List rows = new ArrayList();
        rows.add(new GenericInternalRow(new Object[] { UnsafeArrayData.fromPrimitiveArray(words) }));
        LocalRelation relation = new LocalRelation(seq(fields), seq(rows), false, scala.Option.empty());
        final Expression array = ExpressionUtils.expression(Dataset.ofRows(session, relation).scalar());
        Expression parsed = session.sessionState().sqlParser().parseExpression(text);
        return ExpressionUtils.column((Expression) parsed.transformDown(new AbstractPartialFunction() {
            public boolean isDefinedAt(Object node) { return stands(node); }
            public Object applyOrElse(Object node, scala.Function1 other) {
                return stands(node) ? array : other.apply(node);
            }
            private boolean stands(Object node) {
                return node instanceof UnresolvedAttribute
                        && ((UnresolvedAttribute) node).nameParts().mkString(".").equals(name);
            }
        }));
    }

    private static scala.collection.immutable.Seq seq(List items) {
        return scala.jdk.javaapi.CollectionConverters.asScala(items).toSeq();
    }
}
