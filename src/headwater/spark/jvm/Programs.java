package headwater;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.BlockRDD;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.plans.physical.SinglePartition$;
import org.apache.spark.sql.catalyst.types.DataTypeUtils$;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.execution.CoalesceExec;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.RDDScanExec;
import org.apache.spark.sql.execution.SQLExecution$;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeLike;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.BlockManager;
import org.apache.spark.storage.StorageLevel;
import org.apache.spark.storage.StreamBlockId;
import scala.runtime.AbstractPartialFunction;

/**
 * Plans that are made once and run many times, over other rows each time.
 *
 * What Spark's optimizer makes of a query depends on the rows that a plan holds itself. So it is given relations that
 * hold none, of which only the names are known, and the rows are put in the places of those when the plan is run.
 */
public class Programs {
    /** More rows than these are not sent along with a task, but left where the task finds them. */
    private static final int FEW = 1000;
    /** What such rows are known by: no stream of Spark's has as high a number. */
    private static final int STREAM = Integer.MAX_VALUE;
    private static final AtomicLong LEFT = new AtomicLong();

    /** A relation of a name and a schema, in one partition, whose rows come later. */
    public static Object place(SparkSession session, String name, String schema) {
        org.apache.spark.sql.classic.SparkSession spark = (org.apache.spark.sql.classic.SparkSession) session;
        StructType fields = (StructType) StructType.fromJson(schema);
        RDD none = oneOf(spark, scala.collection.immutable.Nil$.MODULE$);
        none.setName(name);
        return Dataset$.MODULE$.ofRows(spark, new LogicalRDD(
            DataTypeUtils$.MODULE$.toAttributes(fields), none, SinglePartition$.MODULE$,
            scala.collection.immutable.Nil$.MODULE$, false, scala.Option.empty(), spark,
            scala.Option.empty(), scala.Option.empty(), false));
    }

    /**
     * How Spark would compute a query, in a single task; null if that cannot be run again as it is.
     *
     * Every place has one partition, so where Spark means to exchange rows between tasks there is nothing to exchange:
     * at most, parts of a union are put together.
     */
    public static SparkPlan planned(final Object frame) {
        // Operators belong to the session that is active in the thread that makes them.
        return (SparkPlan) ((Dataset) frame).sparkSession().withActive(new scala.runtime.AbstractFunction0() {
            public Object apply() { return inOneTask(((Dataset) frame).queryExecution().executedPlan()); }
        });
    }

    private static SparkPlan inOneTask(SparkPlan plan) {
        final boolean[] bound = new boolean[] {plan.subqueriesAll().nonEmpty()};
        SparkPlan alone = (SparkPlan) plan.transformUp(new AbstractPartialFunction() {
            public boolean isDefinedAt(Object node) { return node instanceof SparkPlan; }
            public Object applyOrElse(Object node, scala.Function1 other) {
                bound[0] |= node instanceof ReusedExchangeExec;
                if (node instanceof ShuffleExchangeLike) return new CoalesceExec(1, (SparkPlan) ((SparkPlan) node).children().head());
                return node;
            }
        });
        return bound[0] ? null : alone;
    }

    /** The rows of one Arrow batch (none, if it has no bytes), to be put in a place. */
    public static scala.collection.immutable.Seq rows(byte[] batch, String schema) {
        final StructType fields = (StructType) StructType.fromJson(schema);
        List batches = new ArrayList();
        if (batch.length > 0) batches.add(batch);
        final scala.collection.Iterator found = ArrowConverters$.MODULE$.fromBatchIterator(
            scala.jdk.javaapi.CollectionConverters.asScala(batches.iterator()), fields, "UTC", false, false,
            (TaskContext) null);
        UnsafeProjection copied = UnsafeProjection.create(fields);
        List rows = new ArrayList();
        while (found.hasNext()) rows.add(copied.apply((InternalRow) found.next()).copy());
        return scala.jdk.javaapi.CollectionConverters.asScala(rows).toSeq();
    }

    /** The same from a file that holds nothing but the batch. */
    public static scala.collection.immutable.Seq rowsOfFile(String path, String schema) throws java.io.IOException {
        return rows(java.nio.file.Files.readAllBytes(new java.io.File(path).toPath()), schema);
    }

    /**
     * Run a plan with rows in its places; what comes of it as an Arrow batch, without any bytes if there are no rows.
     *
     * The bytes are given as text, which Python decodes at once; an array would be taken over byte by byte.
     */
    public static String run(SparkSession session, final SparkPlan plan, final Map places) {
        final org.apache.spark.sql.classic.SparkSession spark = (org.apache.spark.sql.classic.SparkSession) session;
        return java.util.Base64.getEncoder().encodeToString(
            (byte[]) spark.withActive(new scala.runtime.AbstractFunction0() {
                public Object apply() { return made(spark, plan, places); }
            }));
    }

    private static byte[] made(
            final org.apache.spark.sql.classic.SparkSession spark, SparkPlan plan, Map places) {
        Map found = new IdentityHashMap();
        try {
            return made(spark, plan, places, found);
        } finally {
            for (Iterator each = found.values().iterator(); each.hasNext(); ) {
                Object rows = each.next();
                if (rows instanceof BlockRDD) ((BlockRDD) rows).removeBlocks();
            }
        }
    }

    /** The same; {@code known} are the rows that are found in places, as tasks read them. */
    private static byte[] made(
            final org.apache.spark.sql.classic.SparkSession spark, SparkPlan plan, final Map places, final Map known) {
        final SparkPlan over = (SparkPlan) plan.transformUp(new AbstractPartialFunction() {
            public boolean isDefinedAt(Object node) { return node instanceof RDDScanExec; }
            public Object applyOrElse(Object node, scala.Function1 other) {
                if (!(node instanceof RDDScanExec)) return other.apply(node);
                RDDScanExec scan = (RDDScanExec) node;
                scala.collection.immutable.Seq found = (scala.collection.immutable.Seq) places.get(scan.rdd().name());
                if (found == null) return node;  // a single row without columns, which Spark scans so too
                if (!known.containsKey(found)) known.put(found, oneOf(spark, found));
                return new RDDScanExec(scan.output(), (RDD) known.get(found), scan.name(), scan.outputPartitioning(),
                    scan.outputOrdering(), scan.stream());
            }
        });
        InternalRow[] made = (InternalRow[]) SQLExecution$.MODULE$.withSQLConfPropagated(spark,
            new scala.runtime.AbstractFunction0() { public Object apply() { return over.executeCollect(); } });
        if (made.length == 0) return new byte[0];
        // A batch of any size: who asks has bounded the rows.
        return (byte[]) ArrowConverters$.MODULE$.toBatchIterator(
            scala.jdk.javaapi.CollectionConverters.asScala(java.util.Arrays.asList(made).iterator()),
            over.schema(), 0L, "UTC", false, false, (TaskContext) null).next();
    }

    private static RDD oneOf(org.apache.spark.sql.classic.SparkSession spark, scala.collection.immutable.Seq rows) {
        scala.reflect.ClassTag kind = scala.reflect.ClassTag$.MODULE$.apply(InternalRow.class);
        if (rows.size() <= FEW) return spark.sparkContext().parallelize(rows, 1, kind);
        // A task of this process takes these rows as they are; what is sent along is written and read first.
        BlockId place = new StreamBlockId(STREAM, LEFT.incrementAndGet());
        if (!blocks().putIterator(place, rows.iterator(), StorageLevel.MEMORY_AND_DISK(), true, kind))
            throw new IllegalStateException("no room for rows of a plan");
        return new BlockRDD(spark.sparkContext(), new BlockId[] {place}, kind);
    }

    /** {@code SparkEnv.get().blockManager()}: to compile that, all that SparkEnv names would have to be there. */
    private static BlockManager blocks() {
        try {
            Class environment = Class.forName("org.apache.spark.SparkEnv", true, SparkSession.class.getClassLoader());
            MethodHandles.Lookup lookup = MethodHandles.publicLookup();
            List none = new ArrayList();
            List it = new ArrayList();
            it.add(lookup.findStatic(environment, "get", MethodType.methodType(environment)).invokeWithArguments(none));
            return (BlockManager) lookup.findVirtual(environment, "blockManager", MethodType.methodType(BlockManager.class))
                .invokeWithArguments(it);
        } catch (Throwable error) {
            throw new IllegalStateException(error);
        }
    }
}
