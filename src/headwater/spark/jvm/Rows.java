package headwater;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.channels.SeekableByteChannel;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowFileReader;
import org.apache.arrow.vector.ipc.message.ArrowBlock;
import org.apache.arrow.vector.util.ByteArrayReadableSeekableByteChannel;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter;
import org.apache.spark.sql.types.*;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.Platform;

/**
 * Rows of an Arrow file in the form in which Spark computes with them.
 *
 * What Spark makes of Arrow's columns asks for each value by itself, and makes an object of each decimal. These columns
 * are read as they lie in memory: a decimal of up to 18 digits is a whole number on both sides.
 */
public class Rows {
    private static final int BIT = 0, BYTE = 1, SHORT = 2, INT = 3, LONG = 4, SMALL_DECIMAL = 5, DECIMAL = 6, BYTES = 7;
    /** Bytes of a decimal in Arrow. */
    private static final int WIDTH = 16;

    private final byte[] bytes;
    private final String path;
    private final StructType fields;
    private final int[] kinds;

    /** Rows of a file that is held. */
    public Rows(byte[] bytes, String schema) {
        this(bytes, null, schema);
    }

    /** Rows of a file in a folder. */
    public Rows(String path, String schema) {
        this(null, path, schema);
    }

    private Rows(byte[] bytes, String path, String schema) {
        this.bytes = bytes;
        this.path = path;
        fields = (StructType) StructType.fromJson(schema);
        kinds = kinds(fields);
    }

    /** All rows. Several threads take batches in turn. */
    public Packed read(int threads) throws Exception {
        final Packed.Part[] found = new Packed.Part[batches()];
        Runnable[] works = new Runnable[Math.max(1, Math.min(threads, found.length))];
        for (int i = 0; i < works.length; i++) {
            final int first = i, step = works.length;
            works[i] = new Runnable() {
                public void run() { read(found, first, step); }
            };
        }
        together(works);
        return new Packed(fields.length(), found);
    }

    /** Do several things at once; the first of their errors is raised once all have ended. */
    public static void together(final Runnable[] works) {
        final Throwable[] errors = new Throwable[works.length];
        Thread[] others = new Thread[works.length];
        for (int i = 0; i < works.length; i++) {
            final int place = i;
            Runnable work = new Runnable() {
                public void run() {
                    try {
                        works[place].run();
                    } catch (Throwable error) {
                        errors[place] = error;
                    }
                }
            };
            if (i == works.length - 1) {
                work.run();
            } else {
                others[i] = new Thread(work, "headwater rows");
                others[i].setDaemon(true);
                others[i].start();
            }
        }
        try {
            for (int i = 0; i < works.length - 1; i++) others[i].join();
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(stopped);
        }
        for (int i = 0; i < works.length; i++) {
            if (errors[i] instanceof RuntimeException) throw (RuntimeException) errors[i];
            if (errors[i] instanceof Error) throw (Error) errors[i];
        }
    }

    private ArrowFileReader open(BufferAllocator memory) throws java.io.IOException {
        SeekableByteChannel channel = bytes != null
            ? (SeekableByteChannel) new ByteArrayReadableSeekableByteChannel(bytes)
            : (SeekableByteChannel) java.nio.channels.FileChannel.open(
                new java.io.File(path).toPath(), new java.nio.file.OpenOption[] {java.nio.file.StandardOpenOption.READ});
        return new ArrowFileReader(channel, memory);
    }

    private static BufferAllocator memory() {
        return ArrowUtils.rootAllocator().newChildAllocator("headwater rows", 0, Long.MAX_VALUE);
    }

    private int batches() throws java.io.IOException {
        BufferAllocator memory = memory();
        try {
            ArrowFileReader reader = open(memory);
            try {
                return reader.getRecordBlocks().size();
            } finally {
                reader.close();
            }
        } finally {
            memory.close();
        }
    }

    private void read(Packed.Part[] found, int first, int step) {
        BufferAllocator memory = memory();
        try {
            ArrowFileReader reader = open(memory);
            try {
                List blocks = reader.getRecordBlocks();
                for (int i = first; i < found.length; i += step) {
                    reader.loadRecordBatch((ArrowBlock) blocks.get(i));
                    VectorSchemaRoot batch = reader.getVectorSchemaRoot();
                    found[i] = new Packed.Part();
                    if (kinds == null) convert(batch, fields, found[i]);
                    else copy(batch, kinds, fields, found[i]);
                }
            } finally {
                reader.close();
            }
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        } finally {
            memory.close();
        }
    }

    /** How the values of each column lie in memory; null if Spark has to read some of them itself. */
    private static int[] kinds(StructType fields) {
        int[] kinds = new int[fields.length()];
        for (int i = 0; i < kinds.length; i++) {
            DataType type = fields.apply(i).dataType();
            if (type instanceof BooleanType) kinds[i] = BIT;
            else if (type instanceof ByteType) kinds[i] = BYTE;
            else if (type instanceof ShortType) kinds[i] = SHORT;
            else if (type instanceof IntegerType || type instanceof DateType || type instanceof FloatType) kinds[i] = INT;
            else if (type instanceof LongType || type instanceof DoubleType || type instanceof TimestampType
                    || type instanceof TimestampNTZType) kinds[i] = LONG;
            else if (type instanceof DecimalType)
                kinds[i] = ((DecimalType) type).precision() <= Decimal.MAX_LONG_DIGITS() ? SMALL_DECIMAL : DECIMAL;
            else if (type instanceof BinaryType || type.getClass().getSimpleName().equals("StringType$")) kinds[i] = BYTES;
            else return null;
        }
        return kinds;
    }

    private static void copy(VectorSchemaRoot batch, int[] kinds, StructType fields, Packed.Part rows) {
        int width = kinds.length;
        long[] values = new long[width], valid = new long[width], offsets = new long[width];
        int[] precisions = new int[width], scales = new int[width];
        for (int i = 0; i < width; i++) {
            FieldVector vector = batch.getVector(i);
            values[i] = vector.getDataBuffer().memoryAddress();
            valid[i] = vector.getNullCount() == 0 ? 0 : vector.getValidityBuffer().memoryAddress();
            if (kinds[i] == BYTES) offsets[i] = vector.getOffsetBuffer().memoryAddress();
            if (kinds[i] == DECIMAL) {
                precisions[i] = ((DecimalType) fields.apply(i).dataType()).precision();
                scales[i] = ((DecimalType) fields.apply(i).dataType()).scale();
            }
        }
        UnsafeRowWriter writer = new UnsafeRowWriter(width, 32 * width);
        int count = batch.getRowCount();
        byte[] word = new byte[1 << 10];
        for (int row = 0; row < count; row++) {
            writer.reset();
            writer.zeroOutNullBytes();
            for (int i = 0; i < width; i++) {
                if (valid[i] != 0 && (Platform.getByte(null, valid[i] + (row >> 3)) >> (row & 7) & 1) == 0) {
                    if (kinds[i] == DECIMAL) writer.write(i, (Decimal) null, precisions[i], scales[i]);
                    else writer.setNullAt(i);
                    continue;
                }
                switch (kinds[i]) {
                    case BIT:
                        writer.write(i, (Platform.getByte(null, values[i] + (row >> 3)) >> (row & 7) & 1) != 0);
                        break;
                    case BYTE: writer.write(i, Platform.getByte(null, values[i] + row)); break;
                    case SHORT: writer.write(i, Platform.getShort(null, values[i] + 2L * row)); break;
                    case INT: writer.write(i, Platform.getInt(null, values[i] + 4L * row)); break;
                    case LONG: writer.write(i, Platform.getLong(null, values[i] + 8L * row)); break;
                    case SMALL_DECIMAL: writer.write(i, Platform.getLong(null, values[i] + WIDTH * (long) row)); break;
                    case DECIMAL:
                        writer.write(
                            i, decimal(values[i] + WIDTH * (long) row, precisions[i], scales[i]), precisions[i], scales[i]);
                        break;
                    default:
                        int begin = Platform.getInt(null, offsets[i] + 4L * row);
                        int size = Platform.getInt(null, offsets[i] + 4L * row + 4) - begin;
                        if (size > word.length) word = new byte[2 * size];
                        Platform.copyMemory(null, values[i] + begin, word, Platform.BYTE_ARRAY_OFFSET, size);
                        writer.write(i, word, 0, size);
                }
            }
            rows.add(writer.getRow());
        }
    }

    /** A decimal of more than 18 digits: 16 bytes, the lowest first. */
    private static Decimal decimal(long address, int precision, int scale) {
        byte[] digits = new byte[WIDTH];
        for (int i = 0; i < WIDTH; i++) digits[i] = Platform.getByte(null, address + WIDTH - 1 - i);
        Decimal made = new Decimal();
        made.set(scala.math.BigDecimal$.MODULE$.javaBigDecimal2bigDecimal(
            new BigDecimal(new BigInteger(digits), scale)), precision, scale);
        return made;
    }

    /** What Spark makes of columns of any type. */
    private static void convert(VectorSchemaRoot batch, StructType fields, Packed.Part rows) {
        ColumnVector[] columns = new ColumnVector[fields.length()];
        for (int i = 0; i < columns.length; i++) columns[i] = new ArrowColumnVector(batch.getVector(i));
        ColumnarBatch read = new ColumnarBatch(columns, batch.getRowCount());
        UnsafeProjection copied = UnsafeProjection.create(fields);
        for (java.util.Iterator each = read.rowIterator(); each.hasNext(); )
            rows.add(copied.apply((InternalRow) each.next()));
    }
}
