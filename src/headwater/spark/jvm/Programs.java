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
import org.apache.spark.memory.MemoryManager;
import org.apache.spark.rdd.BlockRDD;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.catalyst.plans.physical.SinglePartition$;
import org.apache.spark.sql.catalyst.plans.physical.UnknownPartitioning;
import org.apache.spark.sql.catalyst.types.DataTypeUtils$;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.execution.CoalesceExec;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.QueryExecution$;
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
    /** More bytes than these are not told as text. */
    private static final int BY_WIRE = 32 << 10;
    /** What such rows are known by: no stream of Spark's has as high a number. */
    private static final int STREAM = Integer.MAX_VALUE;
    private static final AtomicLong LEFT = new AtomicLong();
    private static final String[] SITES = {"callSite.short", "callSite.long"};
    private static final String[] HERE = {"headwater", "headwater.Programs"};

    /** A relation of a name and a schema, in some partitions, whose rows come later. */
    public static Object place(SparkSession session, String name, String schema, int parts) {
        org.apache.spark.sql.classic.SparkSession spark = (org.apache.spark.sql.classic.SparkSession) session;
        StructType fields = (StructType) StructType.fromJson(schema);
        RDD none = of(spark, new Packed(0, new Packed.Part[0]), 1, null);
        none.setName(name);
        return Dataset$.MODULE$.ofRows(spark, new LogicalRDD(
            DataTypeUtils$.MODULE$.toAttributes(fields), none,
            parts == 1 ? (Partitioning) SinglePartition$.MODULE$ : new UnknownPartitioning(parts),
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
        final QueryExecution query = ((Dataset) frame).queryExecution();
        // Operators belong to the session that is active in the thread that makes them.
        return (SparkPlan) ((Dataset) frame).sparkSession().withActive(new scala.runtime.AbstractFunction0() {
            public Object apply() { return again(query.executedPlan(), true); }
        });
    }

    /**
     * The same for many rows, of which the numbers are known by the names of their places.
     *
     * Only such a plan may have several tasks, if `spread` says so: then each of them keeps to the limit by itself.
     */
    public static SparkPlan plannedForMany(final Object frame, final int limit, final Map sizes, final boolean spread) {
        final QueryExecution query = ((Dataset) frame).limit(limit).queryExecution();
        return (SparkPlan) ((Dataset) frame).sparkSession().withActive(new scala.runtime.AbstractFunction0() {
            public Object apply() {
                LogicalPlan plan = query.optimizedPlan();
                // (The query may end in a limit of its own, which it then has instead.)
                if (spread && plan instanceof GlobalLimit
                        && ((GlobalLimit) plan).limitExpr().equals(Literal$.MODULE$.apply(Integer.valueOf(limit))))
                    plan = ((GlobalLimit) plan).child();
                return again(QueryExecution$.MODULE$.prepareExecutedPlan(
                    query.sparkSession(), Large.improved(
                        plan, sizes, memory().maxOnHeapStorageMemory(), memory().pageSizeBytes())), !spread);
            }
        });
    }

    private static SparkPlan again(SparkPlan plan, final boolean inOneTask) {
        final boolean[] bound = new boolean[] {plan.subqueriesAll().nonEmpty()};
        SparkPlan alone = (SparkPlan) plan.transformUp(new AbstractPartialFunction() {
            public boolean isDefinedAt(Object node) { return node instanceof SparkPlan; }
            public Object applyOrElse(Object node, scala.Function1 other) {
                bound[0] |= node instanceof ReusedExchangeExec;
                if (inOneTask && node instanceof ShuffleExchangeLike)
                    return new CoalesceExec(1, (SparkPlan) ((SparkPlan) node).children().head());
                return node;
            }
        });
        return bound[0] ? null : alone;
    }

    /** The rows of an Arrow file (none, if it has no bytes), to be put in a place. */
    public static Packed rows(byte[] file, String schema) throws Exception {
        return file.length == 0 ? new Packed(0, new Packed.Part[0]) : new Rows(file, schema).read(1);
    }

    /** The same from a file in a folder, read by several threads. */
    public static Packed rowsOfFile(String path, String schema, int threads) throws Exception {
        return new Rows(path, schema).read(threads);
    }

    /**
     * Run a plan with rows in its places; what comes of it as an Arrow batch, without any bytes if there are no rows.
     *
     * Few bytes are given as text, which Python decodes at once (an array would be taken over byte by byte); more are
     * left in a file, and the answer is null.
     */
    public static String run(SparkSession session, final SparkPlan plan, final Map places, final String path) {
        final org.apache.spark.sql.classic.SparkSession spark = (org.apache.spark.sql.classic.SparkSession) session;
        final List left = new ArrayList();
        return (String) spark.withActive(new scala.runtime.AbstractFunction0() {
            public Object apply() {
                String[] calledFrom = callFrom(spark, HERE);
                try {
                    byte[] made = one(spark, filled(spark, plan, places, left));
                    if (made.length <= BY_WIRE) return java.util.Base64.getEncoder().encodeToString(made);
                    leave(new byte[][] {made}, path);
                    return null;
                } finally {
                    callFrom(spark, calledFrom);
                    free(left);
                }
            }
        });
    }

    /**
     * The same for many rows: batches are left in a file, each after its length.
     *
     * Every task makes batches of what it has. The frame is that of which the plan was made.
     */
    public static void runForMany(
            SparkSession session, final SparkPlan plan, final Map places, final Object frame, final String path) {
        final org.apache.spark.sql.classic.SparkSession spark = (org.apache.spark.sql.classic.SparkSession) session;
        final List left = new ArrayList();
        spark.withActive(new scala.runtime.AbstractFunction0() {
            public Object apply() {
                String[] calledFrom = callFrom(spark, HERE);
                try {
                    leave(spark, filled(spark, plan, places, left), (Dataset) frame, path);
                } finally {
                    callFrom(spark, calledFrom);
                    free(left);
                }
                return null;
            }
        });
    }

    /** Say where this thread's jobs are called from (or Spark looks at the stack for each RDD); what was said before. */
    private static String[] callFrom(org.apache.spark.sql.classic.SparkSession spark, String[] place) {
        String[] before = new String[SITES.length];
        for (int i = 0; i < SITES.length; i++) {
            before[i] = spark.sparkContext().getLocalProperty(SITES[i]);
            spark.sparkContext().setLocalProperty(SITES[i], place[i]);
        }
        return before;
    }

    private static void leave(
            org.apache.spark.sql.classic.SparkSession spark, final SparkPlan plan, final Dataset frame, String path) {
        Object batches = SQLExecution$.MODULE$.withSQLConfPropagated(spark, new scala.runtime.AbstractFunction0() {
            public Object apply() { return frame.toArrowBatchRdd(plan).collect(); }
        });
        leave(batches, path);
    }

    private static void leave(Object batches, String path) {
        try {
            java.io.DataOutputStream file = new java.io.DataOutputStream(
                new java.io.BufferedOutputStream(new java.io.FileOutputStream(path), 1 << 20));
            try {
                for (int i = 0; i < java.lang.reflect.Array.getLength(batches); i++) {
                    byte[] batch = (byte[]) java.lang.reflect.Array.get(batches, i);
                    file.writeInt(batch.length);
                    file.write(batch);
                }
            } finally {
                file.close();
            }
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    private static void free(List left) {
        for (Iterator each = left.iterator(); each.hasNext(); ) blocks().master().removeBlock((BlockId) each.next());
    }

    /** A plan with rows in its places; {@code left} are the blocks that these are in for a while. */
    private static SparkPlan filled(
            final org.apache.spark.sql.classic.SparkSession spark, SparkPlan plan, final Map places, final List left) {
        final Map known = new IdentityHashMap();
        return (SparkPlan) plan.transformUp(new AbstractPartialFunction() {
            public boolean isDefinedAt(Object node) { return node instanceof RDDScanExec; }
            public Object applyOrElse(Object node, scala.Function1 other) {
                if (!(node instanceof RDDScanExec)) return other.apply(node);
                RDDScanExec scan = (RDDScanExec) node;
                Packed found = (Packed) places.get(scan.rdd().name());
                if (found == null) return node;  // a single row without columns, which Spark scans so too
                int parts = scan.outputPartitioning().numPartitions();
                if (!known.containsKey(found)) known.put(found, of(spark, found, parts, left));
                return new RDDScanExec(scan.output(), (RDD) known.get(found), scan.name(), scan.outputPartitioning(),
                    scan.outputOrdering(), scan.stream());
            }
        });
    }

    private static byte[] one(org.apache.spark.sql.classic.SparkSession spark, final SparkPlan plan) {
        InternalRow[] made = (InternalRow[]) SQLExecution$.MODULE$.withSQLConfPropagated(spark,
            new scala.runtime.AbstractFunction0() { public Object apply() { return plan.executeCollect(); } });
        if (made.length == 0) return new byte[0];
        // A batch of any size: who asks has bounded the rows.
        return (byte[]) ArrowConverters$.MODULE$.toBatchIterator(
            scala.jdk.javaapi.CollectionConverters.asScala(java.util.Arrays.asList(made).iterator()),
            plan.schema(), 0L, "UTC", false, false, (TaskContext) null).next();
    }

    /** Rows as tasks read them; blocks that are made for it are added to those that are left. */
    private static RDD of(
            org.apache.spark.sql.classic.SparkSession spark, final Packed rows, final int parts, List left) {
        scala.reflect.ClassTag kind = scala.reflect.ClassTag$.MODULE$.apply(InternalRow.class);
        if (rows.size() <= FEW)
            return spark.sparkContext().parallelize(
                (scala.collection.immutable.Seq) scala.collection.immutable.ArraySeq$.MODULE$.from(
                    rows.copies(), scala.reflect.ClassTag$.MODULE$.apply(Object.class)), parts, kind);
        // A task of this process takes these rows as they are; what is sent along is written and read first.
        if (spark.sparkContext().isLocal()) {
            scala.reflect.ClassTag any = scala.reflect.ClassTag$.MODULE$.apply(Object.class);
            BlockId[] places = put(rows, parts, true, any, StorageLevel.MEMORY_ONLY(), left);
            if (places != null)
                return new BlockRDD(spark.sparkContext(), places, any).flatMap(
                    (scala.Function1) scala.$less$colon$less$.MODULE$.refl(), kind);
        }
        BlockId[] places = put(rows, parts, false, kind, StorageLevel.MEMORY_AND_DISK(), left);
        if (places == null) throw new IllegalStateException("no room for rows of a plan");
        return new BlockRDD(spark.sparkContext(), places, kind);
    }

    /** Leave rows where tasks find them, each piece as one or each row by itself; null if there is no room. */
    private static BlockId[] put(
            final Packed rows, final int parts, final boolean whole, final scala.reflect.ClassTag kind,
            final StorageLevel level, List left) {
        final BlockId[] places = new BlockId[parts];
        final boolean[] done = new boolean[parts];
        Runnable[] puts = new Runnable[parts];
        for (int i = 0; i < parts; i++) {
            final int part = i;
            places[part] = new StreamBlockId(STREAM, LEFT.incrementAndGet());
            left.add(places[part]);
            puts[part] = new Runnable() {
                public void run() {
                    Packed piece = rows.piece(part, parts);
                    scala.collection.Iterator given =
                        whole ? scala.collection.Iterator$.MODULE$.single(piece) : piece.copies();
                    done[part] = blocks().putIterator(places[part], given, level, true, kind);
                }
            };
        }
        Rows.together(puts);
        for (int part = 0; part < parts; part++) if (!done[part]) return null;
        return places;
    }

    private static BlockManager blocks() {
        return (BlockManager) ofEnvironment("blockManager", BlockManager.class);
    }

    private static MemoryManager memory() {
        return (MemoryManager) ofEnvironment("memoryManager", MemoryManager.class);
    }

    /** What {@code SparkEnv.get()} has: to compile that, all that SparkEnv names would have to be there. */
    private static Object ofEnvironment(String name, Class kind) {
        try {
            Class environment = Class.forName("org.apache.spark.SparkEnv", true, SparkSession.class.getClassLoader());
            MethodHandles.Lookup lookup = MethodHandles.publicLookup();
            List none = new ArrayList();
            List it = new ArrayList();
            it.add(lookup.findStatic(environment, "get", MethodType.methodType(environment)).invokeWithArguments(none));
            return lookup.findVirtual(environment, name, MethodType.methodType(kind)).invokeWithArguments(it);
        } catch (Throwable error) {
            throw new IllegalStateException(error);
        }
    }
}
