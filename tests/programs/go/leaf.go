// A function without a frame, called by two others, of which one calls it three times as often.
package main

import "fmt"

var data [1 << 16]uint64

// No call and no check of bounds: the function has no frame.
//
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
	for i := range data {
		data[i] = uint64(i)
	}
	sum := uint64(0)
	for round := 0; round < 30000; round++ {
		sum += often(round) + seldom(round)
	}
	fmt.Println(sum)
}
