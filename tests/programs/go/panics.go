// Panics, recoveries, deferred calls, and faults that the runtime turns into panics.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

type tree struct {
	kids [2]*tree
	v    int
}

func recovered(f func()) (what string) {
	defer func() {
		if r := recover(); r != nil {
			what = fmt.Sprint(r)
			if e, is := r.(runtime.Error); is {
				what = "runtime: " + e.Error()
			}
		}
	}()
	f()
	return "none"
}

//go:noinline
func load(t *tree, side int) int { return t.kids[side].v }

func nested(n int) (sum int) {
	defer func() {
		if r := recover(); r != nil {
			sum += r.(int)
			if n%3 == 0 {
				panic(sum % 1000)
			}
		}
	}()
	defer func() { sum += n }()
	for i := 0; i < 3; i++ {
		defer func(i int) { sum += i }(i)
	}
	if n == 0 {
		panic(7)
	}
	return nested(n-1) + 1
}

func main() {
	var none *tree
	var m map[string]int
	idx, zero := 5, 0
	counts := map[string]int{}
	for i := 0; i < 3000; i++ {
		counts[recovered(func() { load(none, i%2) })]++
		counts[recovered(func() { load(&tree{}, i%2) })]++
		counts[recovered(func() { m["a"] = 1 })]++
		counts[recovered(func() { fmt.Sprint([]int{1, 2}[idx%(i%7+1)]) })]++
		counts[recovered(func() { fmt.Sprint(i / zero) })]++
		counts[recovered(func() { var e any = "s"; fmt.Sprint(e.(int)) })]++
		counts[recovered(func() { nested(i % 12) })]++
		counts[recovered(func() { panic(errors.New("own")) })]++
	}
	fmt.Println(counts)
	done := make(chan bool)
	for g := 0; g < 10; g++ {
		go func() {
			defer func() { done <- true }()
			defer fmt.Sprint("x")
			runtime.Goexit()
		}()
	}
	for g := 0; g < 10; g++ {
		<-done
	}
	defer os.Exit(3)
	defer fmt.Println("last")
}
