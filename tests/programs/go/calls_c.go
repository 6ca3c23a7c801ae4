// Calls of C functions and back, on threads of both.
package main

/*
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

extern long goSquare(long);

static long twice(long x) { return 2 * x; }
static long back(long x) { return goSquare(x) + 1; }
static void *thread(void *x) { return (void *)(intptr_t)back((long)(intptr_t)x); }
static long on_thread(long x) {
	pthread_t t;
	void *r = 0;
	if (pthread_create(&t, 0, thread, (void *)(intptr_t)x)) abort();
	pthread_join(t, &r);
	return (long)(intptr_t)r;
}
static int compare(const void *a, const void *b) {
	long x = *(const long *)a, y = *(const long *)b;
	return (x > y) - (x < y);
}
static void sort(long *a, long n) { qsort(a, n, sizeof *a, compare); }
*/
import "C"

import (
	"fmt"
	"runtime"
	"sync"
)

//export goSquare
func goSquare(x C.long) C.long {
	s := make([]int, int(x)%50+1)
	for i := range s {
		s[i] = int(x)
	}
	if x%64 == 0 {
		runtime.GC()
	}
	return C.long(s[len(s)-1]) * x
}

func main() {
	sum := 0
	for i := 0; i < 20000; i++ {
		sum += int(C.twice(C.long(i)))
		if i%4 == 0 {
			sum ^= int(C.back(C.long(i)))
		}
	}
	fmt.Println(sum)
	var all sync.WaitGroup
	results := make([]int, 10)
	for g := range results {
		all.Add(1)
		go func(g int) {
			defer all.Done()
			for i := 0; i < 40; i++ {
				results[g] += int(C.on_thread(C.long(g*100 + i)))
			}
		}(g)
	}
	all.Wait()
	fmt.Println(results)
	a := make([]C.long, 20000)
	for i := range a {
		a[i] = C.long(i * 7919 % 20011)
	}
	C.sort(&a[0], C.long(len(a)))
	fmt.Println(a[0], a[9999], a[19999])
}
