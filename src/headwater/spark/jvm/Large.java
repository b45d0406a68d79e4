package headwater;

import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Add;
import org.apache.spark.sql.catalyst.expressions.BitwiseAnd;
import org.apache.spark.sql.catalyst.expressions.CaseWhen;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.MakeDecimal;
import org.apache.spark.sql.catalyst.expressions.Multiply;
import org.apache.spark.sql.catalyst.expressions.ShiftRight;
import org.apache.spark.sql.catalyst.expressions.UnaryMinus;
import org.apache.spark.sql.catalyst.expressions.UnscaledValue;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.Sum;
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys$;
import org.apache.spark.sql.catalyst.plans.FullOuter$;
import org.apache.spark.sql.catalyst.plans.InnerLike;
import org.apache.spark.sql.catalyst.plans.JoinType;
import org.apache.spark.sql.catalyst.plans.LeftAnti$;
import org.apache.spark.sql.catalyst.plans.LeftOuter$;
import org.apache.spark.sql.catalyst.plans.LeftSemi$;
import org.apache.spark.sql.catalyst.plans.RightOuter$;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.HintInfo;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.JoinHint;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SHUFFLE_HASH$;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import scala.runtime.AbstractPartialFunction;

/**
 * What makes plans over many rows quick: what they hold is known, so that Spark need not be careful.
 *
 * Joins look up the rows of the smaller side, rather than sort both. Keys that are never NULL are compared as they are.
 * Decimals are added up as whole numbers.
 */
public class Large {
    /** What all operators of a plan hold takes this part of the memory for it at most, as far as that is known. */
    private static final double HELD = 0.5;
    /** A row that is held takes so many bytes, about. */
    private static final double WIDTH = 200;
    /** How many tables an aggregate has: one of a part, one of the whole. */
    private static final int TABLES = 2;
    /** Halves of an unscaled value are this long … */
    private static final int HALF = 32;
    /** … and sums of them have fewer digits than this. */
    private static final int DIGITS = 20;
    /** Decimals of so many digits behind the point can be put together of halves without losing any. */
    private static final int MOST_SCALE = 6;

    /**
     * An optimized plan, made to be quick over so many rows, by the names of their relations.
     *
     * Of the memory that there is for it, an operator takes a page at least.
     */
    public static LogicalPlan improved(LogicalPlan plan, final Map sizes, long memory, final long page) {
        final double[] left = new double[] {HELD * memory};
        plan.foreach(new scala.runtime.AbstractFunction1() {
            public Object apply(Object node) {
                if (node instanceof Aggregate) left[0] -= TABLES * page;
                return scala.runtime.BoxedUnit.UNIT;
            }
        });
        return (LogicalPlan) plan.transformUp(new AbstractPartialFunction() {
            public boolean isDefinedAt(Object node) { return node instanceof Join || node instanceof Aggregate; }
            public Object applyOrElse(Object node, scala.Function1 other) {
                if (node instanceof Aggregate) return ((Aggregate) node).transformExpressionsUp(new Sums());
                if (node instanceof Join) return hashed((Join) node, sizes, left, page);
                return other.apply(node);
            }
        });
    }

    // -- joins ------------------------------------------------------------------------------------------------------

    private static Join hashed(Join join, Map sizes, double[] left, long page) {
        if (join.condition().nonEmpty())
            join = join.copy(join.left(), join.right(), join.joinType(),
                new scala.Some(((Expression) join.condition().get()).transformUp(new Equalities())), join.hint());
        if (ExtractEquiJoinKeys$.MODULE$.unapply(join).isEmpty()) return join;
        double mine = size(join.left(), sizes), others = size(join.right(), sizes);
        JoinType type = join.joinType();
        boolean either = type instanceof InnerLike || type == LeftOuter$.MODULE$ || type == RightOuter$.MODULE$
            || type == FullOuter$.MODULE$;
        // However little is held, a page is taken for it; joins of the same task have theirs at the same time.
        double held = Math.max(page, WIDTH * (either ? Math.min(mine, others) : others));
        if (held > left[0]) return join;
        left[0] -= held;
        scala.Option hint = new scala.Some(new HintInfo(new scala.Some(SHUFFLE_HASH$.MODULE$)));
        scala.Option none = scala.Option.empty();
        return join.copy(join.left(), join.right(), type, join.condition(),
            either && mine < others ? new JoinHint(hint, none) : new JoinHint(none, hint));
    }

    /** How many rows a plan has, roughly: keys lead to one row each. */
    private static double size(LogicalPlan plan, Map sizes) {
        if (plan instanceof LogicalRDD) {
            Number known = (Number) sizes.get(((LogicalRDD) plan).rdd().name());
            return known == null ? 1 : known.doubleValue();
        }
        double largest = 1, sum = 0;
        for (scala.collection.Iterator each = plan.children().iterator(); each.hasNext(); ) {
            double size = size((LogicalPlan) each.next(), sizes);
            largest = Math.max(largest, size);
            sum += size;
        }
        if (plan instanceof Union) return sum;
        if (plan instanceof Filter) return largest / 2;
        if (plan instanceof Join && (((Join) plan).joinType() == LeftSemi$.MODULE$ || ((Join) plan).joinType() == LeftAnti$.MODULE$))
            return size(((Join) plan).left(), sizes);
        return largest;
    }

    /** Of two keys that are never NULL it need not be asked whether both are. */
    private static class Equalities extends AbstractPartialFunction {
        public boolean isDefinedAt(Object node) { return node instanceof EqualNullSafe; }
        public Object applyOrElse(Object node, scala.Function1 other) {
            if (!(node instanceof EqualNullSafe)) return other.apply(node);
            EqualNullSafe same = (EqualNullSafe) node;
            if (same.left().nullable() || same.right().nullable()) return same;
            return new EqualTo(same.left(), same.right());
        }
    }

    // -- sums -------------------------------------------------------------------------------------------------------

    /**
     * Sums of decimals whose unscaled values are whole numbers of 64 bits, as sums of the two halves of these.
     *
     * Spark's own sum makes an object with an array of bytes of each value. A half has 32 bits, so that it takes more
     * rows than there can be for its sum to leave 64.
     */
    private static class Sums extends AbstractPartialFunction {
        public boolean isDefinedAt(Object node) { return node instanceof AggregateExpression; }
        public Object applyOrElse(Object node, scala.Function1 other) {
            if (!(node instanceof AggregateExpression)) return other.apply(node);
            AggregateExpression call = (AggregateExpression) node;
            if (!(call.aggregateFunction() instanceof Sum) || call.isDistinct()) return call;
            Expression value = ((Sum) call.aggregateFunction()).child();
            if (!(value.dataType() instanceof DecimalType)) return call;
            DecimalType type = (DecimalType) value.dataType();
            int scale = type.scale();
            if (type.precision() > Decimal.MAX_LONG_DIGITS() || scale > MOST_SCALE) return call;
            Expression unscaled = unscaled(value);
            Expression high = sum(call, new ShiftRight(unscaled, new Literal(Integer.valueOf(HALF), DataTypes.IntegerType)));
            Expression low = sum(call, new BitwiseAnd(unscaled, new Literal(Long.valueOf((1L << HALF) - 1), DataTypes.LongType)));
            Expression unit = new Literal(Decimal.apply(1L << HALF, DIGITS / 2, scale), new DecimalType(DIGITS / 2, scale));
            DataType whole = new DecimalType(DIGITS + DIGITS / 2 + 1, scale);
            return new Cast(
                new Add(
                    new Cast(new Multiply(new MakeDecimal(high, DIGITS, 0), unit), whole, scala.Option.empty(), ansi()),
                    new Cast(new MakeDecimal(low, DIGITS, scale), whole, scala.Option.empty(), ansi())),
                call.dataType(), scala.Option.empty(), ansi());
        }
    }

    private static Expression sum(AggregateExpression like, Expression value) {
        return new Sum(value).toAggregateExpression(false, like.filter());
    }

    /** The unscaled value of a decimal; that of one which goes is the negative of its own. */
    private static Expression unscaled(Expression value) {
        if (value instanceof UnaryMinus) return new UnaryMinus(unscaled(((UnaryMinus) value).child()));
        if (!(value instanceof CaseWhen)) return new UnscaledValue(value);
        CaseWhen choice = (CaseWhen) value;
        scala.collection.mutable.ListBuffer branches = new scala.collection.mutable.ListBuffer();
        for (scala.collection.Iterator each = choice.branches().iterator(); each.hasNext(); ) {
            scala.Tuple2 branch = (scala.Tuple2) each.next();
            branches.addOne(new scala.Tuple2(branch._1(), unscaled((Expression) branch._2())));
        }
        scala.Option last = choice.elseValue();
        return new CaseWhen(
            branches.toList(), last.isEmpty() ? last : new scala.Some(unscaled((Expression) last.get())));
    }

    private static scala.Enumeration.Value ansi() {
        return org.apache.spark.sql.catalyst.expressions.EvalMode$.MODULE$.ANSI();
    }
}
