// As leaf.go, in a program with C code.
package main

/*
static long twice(long x) { return 2 * x; }
*/
import "C"

import "fmt"

var data [1 << 16]uint64

//go:noinline
func leaf(at uint16) uint64 {
	sum := uint64(0)
	for i := 0; i < 4096; i++ {
		at = at*25173 + 13849
		sum += data[at]
	}
	return sum
}

//go:noinline
func often(round int) uint64 {
	return leaf(uint16(round)) + leaf(uint16(2*round)) + leaf(uint16(3*round))
}

//go:noinline
func seldom(round int) uint64 {
	return 1 + leaf(uint16(5*round))
}

func main() {
	sum := uint64(C.twice(1))
	for round := 0; round < 30000; round++ {
		sum += often(round) + seldom(round)
	}
	fmt.Println(sum)
}
