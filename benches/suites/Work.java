import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;

/** What a Java program asks of its machine: null checks by SIGSEGV, collections, threads, exceptions, compiled loops. */
public class Work {
    static final class Node {
        Node next;
        int value;
    }

    static long faults(int rounds) {
        long caught = 0;
        Node[] nodes = new Node[64];
        for (int i = 0; i < 64; i++) if (i % 3 != 0) { nodes[i] = new Node(); nodes[i].value = i; }
        for (int i = 0; i < rounds; i++) {
            try {
                caught += nodes[i & 63].value;
            } catch (NullPointerException missing) {
                caught += 1000;
            }
            try {
                caught += i / (i % 7 == 0 ? 0 : i % 7);
            } catch (ArithmeticException byZero) {
                caught += 3;
            }
        }
        return caught;
    }

    static long collections(int n) {
        Map<String, Integer> map = new HashMap<>();
        Random random = new Random(1);
        for (int i = 0; i < n; i++) map.merge("key" + random.nextInt(n / 4), i, Integer::sum);
        TreeMap<String, Integer> sorted = new TreeMap<>(map);
        long sum = 0;
        int place = 0;
        for (var entry : sorted.entrySet()) sum += (long) ++place * entry.getValue();
        return sum;
    }

    static double matrices(int n) {
        double[][] a = new double[n][n], b = new double[n][n], c = new double[n][n];
        for (int i = 0; i < n; i++) for (int j = 0; j < n; j++) { a[i][j] = i - j; b[i][j] = i * j % 7; }
        for (int i = 0; i < n; i++) for (int k = 0; k < n; k++) for (int j = 0; j < n; j++) c[i][j] += a[i][k] * b[k][j];
        double trace = 0;
        for (int i = 0; i < n; i++) trace += c[i][i];
        return trace;
    }

    static long garbage(int n) {
        Node head = null;
        long sum = 0;
        for (int i = 0; i < n; i++) {
            Node node = new Node();
            node.value = i;
            node.next = i % 1000 == 0 ? null : head;
            head = node;
            sum += node.value;
        }
        return sum;
    }

    static int deep(int n) {
        return deep(n + 1) + 1;
    }

    public static void main(String[] words) throws Exception {
        int scale = Integer.parseInt(words[0]);
        System.out.println("faults " + faults(20000 * scale));
        System.out.println("collections " + collections(20000 * scale));
        System.out.println("matrices " + matrices(100 + 20 * scale));
        System.out.println("garbage " + garbage(1000000 * scale));
        try {
            deep(0);
        } catch (StackOverflowError full) {
            System.out.println("stack full");
        }
        ExecutorService pool = Executors.newFixedThreadPool(4);
        List<Future<Long>> parts = new ArrayList<>();
        for (int i = 0; i < 8; i++) { int part = i; parts.add(pool.submit(() -> collections(4000 + 100 * part) + faults(1000))); }
        long all = 0;
        for (Future<Long> part : parts) all = all * 31 + part.get();
        pool.shutdown();
        System.out.println("threads " + all);
        System.out.println("streams " + IntStream.range(0, 100000 * scale).parallel().mapToObj(Integer::toHexString).mapToInt(String::hashCode).sum());
    }
}
