// Sorts, heaps, matrices, hashes and ciphers: generated code of many kinds, assembly among it.
package main

import (
	"bytes"
	"container/heap"
	"crypto/aes"
	"crypto/cipher"
	"crypto/md5"
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"hash/crc32"
	"math"
	"math/big"
	"regexp"
	"sort"
	"strings"
)

type queue []int

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i] < q[j] }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(int)) }
func (q *queue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

func kind(n int) string {
	switch n % 24 {
	case 0:
		return "zero"
	case 1:
		return "one"
	case 2:
		return "two"
	case 3:
		return "three"
	case 4:
		return "four"
	case 5:
		return "five"
	case 6:
		return "six"
	case 7:
		return "seven"
	case 8:
		return "eight"
	case 9:
		return "nine"
	case 10, 11, 12, 13:
		return "some"
	case 14:
		return "fourteen"
	case 15:
		return "fifteen"
	case 16:
		return "sixteen"
	}
	return "many"
}

func main() {
	state := uint32(1)
	next := func() int { state = state*1664525 + 1013904223; return int(state >> 3) }
	words := make([]string, 30000)
	for i := range words {
		words[i] = fmt.Sprintf("%s-%d", kind(next()), next()%5000)
	}
	sort.Strings(words)
	fmt.Println(words[0], words[15000], words[29999])
	sort.SliceStable(words, func(i, j int) bool { return len(words[i]) < len(words[j]) })
	fmt.Println(words[0], words[15000], words[29999])
	q := &queue{}
	sum := 0
	for i := 0; i < 50000; i++ {
		heap.Push(q, next())
		if i%3 == 2 {
			sum ^= heap.Pop(q).(int)
		}
	}
	fmt.Println(sum, q.Len())
	data := bytes.Repeat([]byte(strings.Join(words[:2000], " ")), 10)
	fmt.Printf("%x %x %x %x\n", md5.Sum(data), sha256.Sum256(data), sha512.Sum512(data), crc32.ChecksumIEEE(data))
	block, _ := aes.NewCipher([]byte("0123456789abcdef"))
	gcm, _ := cipher.NewGCM(block)
	sealed := gcm.Seal(nil, make([]byte, 12), data, nil)
	open, err := gcm.Open(nil, make([]byte, 12), sealed, nil)
	fmt.Printf("%x %v %v\n", sha256.Sum256(sealed), bytes.Equal(open, data), err)
	f := new(big.Int).MulRange(1, 1500)
	fmt.Println(f.BitLen(), new(big.Int).Exp(big.NewInt(3), big.NewInt(5000), new(big.Int).Sub(f, big.NewInt(1))).BitLen())
	re := regexp.MustCompile(`(zero|fif\w+)-(\d+)5\b`)
	fmt.Println(len(re.FindAll(data, -1)))
	m := [64][64]float64{}
	for k := 0; k < 20; k++ {
		for i := range m {
			for j := range m[i] {
				m[i][j] = math.Sin(float64(i*j+k)) + 0.5*m[j][i]
			}
		}
	}
	fmt.Printf("%.12f\n", m[17][42])
	counts := map[string]int{}
	for _, w := range words {
		counts[w[:strings.IndexByte(w, '-')]]++
	}
	fmt.Println(counts)
}
