package headwater;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.util.KnownSizeEstimation;
import scala.collection.AbstractIterable;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * Many rows, one after the other in a few arrays.
 *
 * Rows that are objects each are moved by the garbage collector as long as they are there, and Spark looks at many of
 * them to tell how much memory they take. Here that is known. Whoever iterates is given the same row again and again,
 * with other bytes, as between Spark's operators.
 */
public class Packed extends AbstractIterable implements KnownSizeEstimation {
    /** Bytes of an array, at first and at most, unless a row has more; and of what stands before a row: its length. */
    private static final int LEAST = 1 << 16, MOST = 1 << 22, HEAD = 8;

    private final int width;
    private final Part[] parts;
    private final int begin, end;

    public Packed(int width, Part[] parts) {
        this(width, parts, 0, count(parts));
    }

    private Packed(int width, Part[] parts, int begin, int end) {
        this.width = width;
        this.parts = parts;
        this.begin = begin;
        this.end = end;
    }

    /** One of several pieces of about the same size. */
    public Packed piece(int number, int of) {
        int count = end - begin;
        return new Packed(width, parts, begin + (int) ((long) count * number / of),
            begin + (int) ((long) count * (number + 1) / of));
    }

    public int size() { return end - begin; }

    public int knownSize() { return size(); }

    public long estimatedSize() {
        long bytes = 0;
        int count = 0;
        for (int i = 0; i < parts.length; i++) {
            count += parts[i].count;
            for (int j = 0; j < parts[i].chunks.size(); j++) bytes += ((Chunk) parts[i].chunks.get(j)).bytes.length;
        }
        return count == 0 ? 0 : bytes * size() / count;
    }

    public Iterator iterator() { return new Reader(false); }

    /** The rows as objects of their own. */
    public Iterator copies() { return new Reader(true); }

    private static int count(Part[] parts) {
        int count = 0;
        for (int i = 0; i < parts.length; i++) count = Math.addExact(count, parts[i].count);
        return count;
    }

    private static class Chunk {
        byte[] bytes;
        int used, count;

        Chunk(int size) { bytes = new byte[size]; }
    }

    /** Some of the rows, as one thread puts them together. */
    public static class Part {
        private final List chunks = new ArrayList();
        private Chunk last;
        private int count;

        /** Add the bytes of a row. */
        public void add(UnsafeRow row) {
            int size = row.getSizeInBytes();
            if (last == null || last.bytes.length - last.used < HEAD + size) {
                last = new Chunk(Math.max(HEAD + size, last == null ? LEAST : Math.min(MOST, 2 * last.bytes.length)));
                chunks.add(last);
            }
            long place = Platform.BYTE_ARRAY_OFFSET + last.used;
            Platform.putInt(last.bytes, place, size);
            Platform.copyMemory(row.getBaseObject(), row.getBaseOffset(), last.bytes, place + HEAD, size);
            last.used += HEAD + size;
            last.count++;
            count++;
        }
    }

    private class Reader extends AbstractIterator {
        private final boolean copies;
        private final UnsafeRow row = new UnsafeRow(width);
        private int part, number, offset, left;
        private Chunk chunk;

        Reader(boolean copies) {
            this.copies = copies;
            left = end - begin;
            int before = begin;
            while (left > 0 && before >= parts[part].count) before -= parts[part++].count;
            while (left > 0 && before >= here().count) {
                before -= here().count;
                number++;
            }
            if (left == 0) return;
            chunk = here();
            for (; before > 0; before--) offset += HEAD + length();
        }

        private Chunk here() { return (Chunk) parts[part].chunks.get(number); }

        private int length() { return Platform.getInt(chunk.bytes, Platform.BYTE_ARRAY_OFFSET + offset); }

        public boolean hasNext() { return left > 0; }

        public Object next() {
            if (left <= 0) throw new java.util.NoSuchElementException();
            while (offset == chunk.used) {
                offset = 0;
                number++;
                while (number == parts[part].chunks.size()) {
                    part++;
                    number = 0;
                }
                chunk = here();
            }
            int size = length();
            row.pointTo(chunk.bytes, Platform.BYTE_ARRAY_OFFSET + offset + HEAD, size);
            offset += HEAD + size;
            left--;
            return copies ? row.copy() : row;
        }
    }
}
