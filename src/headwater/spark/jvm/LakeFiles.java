package headwater;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.*;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractPartialFunction;

/**
 * The files of one scan, as the lake's catalog lists them: Spark lists nothing and reads no footer to plan.
 *
 * Every file comes with constants (its number, its first row id, ...), which Spark offers as partition columns.
 * Conditions that Spark pushes down are handed to {@code prune}, which answers with the numbers of the files that
 * may hold matching rows.
 */
public class LakeFiles implements FileIndex {
    /** A relation may be kept for many statements: of their questions only so many are remembered. */
    private static final int MOST_ANSWERS = 64;

    private final String name;
    private final StructType constants;
    private final PartitionDirectory[] files;
    private final long size;
    private final Function prune;
    private final Map answers = new HashMap();

    public LakeFiles(String name, StructType constants, String listing, Function prune, double share) throws Exception {
        this.name = name;
        this.constants = constants;
        this.prune = prune;
        JsonNode rows = (JsonNode) new ObjectMapper().readTree(listing);
        StructField[] fields = constants.fields();
        files = new PartitionDirectory[rows.size()];
        long total = 0;
        for (int i = 0; i < files.length; i++) {
            JsonNode row = at(rows, i);
            long length = at(row, 1).asLong();
            total += length;
            Object[] values = new Object[fields.length];
            for (int j = 0; j < fields.length; j++) values[j] = constant(at(row, j + 2), fields[j].dataType());
            FileStatus status = new FileStatus(length, false, 1, 128L << 20, 0L, new Path(at(row, 0).asText()));
            files[i] = PartitionDirectory.apply(new GenericInternalRow(values), new FileStatus[] { status });
        }
        size = (long) (total * share);
    }

    /**
     * A DataFrame over the files; {@code columns} carry field ids, and hold a {@code share} of what the files do.
     *
     * Spark takes what is not larger than its threshold for small enough to send to every task.
     */
    public static Object dataFrame(
            SparkSession session, String name, StructType columns, StructType constants, String listing, Function prune,
            double share)
            throws Exception {
        LakeFiles index = new LakeFiles(name, constants, listing, prune, share);
        HadoopFsRelation relation = new HadoopFsRelation(index, constants, columns, scala.Option.empty(),
                new ParquetFileFormat(), scala.collection.immutable.Map$.MODULE$.empty(), session);
        return session.baseRelationToDataFrame(relation);
    }

    /** The cast is for the compiler, which takes the first of the methods that bear the name. */
    private static JsonNode at(JsonNode list, int place) { return (JsonNode) list.get(place); }

    private static Object constant(JsonNode value, DataType type) {
        if (value == null || value.isNull()) return null;
        if (type instanceof IntegerType) return new Integer(value.asInt());
        if (type instanceof LongType) return new Long(value.asLong());
        return UTF8String.fromString(value.asText());
    }

    /** Conditions on constants alone are decided here: Spark does not ask them again of the rows. */
    public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
        List left = chosen(dataFilters);
        Iterator filters = scala.jdk.javaapi.CollectionConverters.asJava(partitionFilters).iterator();
        while (filters.hasNext()) left = meeting((Expression) filters.next(), left);
        return seq(left);
    }

    private List meeting(Expression condition, List candidates) {
        final StructType known = constants;
        Expression bound = (Expression) condition.transform(new AbstractPartialFunction() {
            public boolean isDefinedAt(Object node) { return node instanceof AttributeReference; }
            public Object applyOrElse(Object node, scala.Function1 other) {
                if (!(node instanceof AttributeReference)) return other.apply(node);
                int place = known.fieldIndex(((AttributeReference) node).name());
                return new BoundReference(place, known.fields()[place].dataType(), true);
            }
        });
        BasePredicate predicate = Predicate$.MODULE$.createInterpreted(bound);
        predicate.initialize(0);
        List left = new ArrayList();
        for (int i = 0; i < candidates.size(); i++) {
            PartitionDirectory file = (PartitionDirectory) candidates.get(i);
            if (predicate.eval(file.values())) left.add(file);
        }
        return left;
    }

    private synchronized List chosen(Seq dataFilters) {
        List everything = Arrays.asList(files);
        if (prune == null || files.length == 0 || dataFilters.isEmpty()) return everything;
        String question = Filters.json(dataFilters);
        List known = (List) answers.get(question);
        if (known != null) return known;
        Object answer = prune.apply(question);
        List left = everything;
        if (answer != null) {
            left = new ArrayList();
            String[] numbers = answer.toString().split(",");
            for (int i = 0; i < numbers.length; i++) {
                if (!numbers[i].isEmpty()) left.add(files[Integer.parseInt(numbers[i])]);
            }
        }
        if (answers.size() >= MOST_ANSWERS) answers.clear();
        answers.put(question, left);
        return left;
    }

    public Seq rootPaths() { return seq(new ArrayList()); }

    public String[] inputFiles() {
        String[] found = new String[files.length];
        for (int i = 0; i < files.length; i++) {
            found[i] = ((org.apache.spark.sql.execution.datasources.FileStatusWithMetadata) files[i].files().head())
                    .getPath().toString();
        }
        return found;
    }

    public void refresh() { }

    public long sizeInBytes() { return size; }

    public StructType partitionSchema() { return constants; }

    public boolean isTimeTravel() { return false; }

    public scala.Option metadataOpsTimeNs() { return scala.Option.empty(); }

    public String toString() { return name + ", " + files.length + " files"; }

    private static Seq seq(List list) {
        return scala.jdk.javaapi.CollectionConverters.asScala(list).toSeq();
    }
}
