// Command rivals measures client-go's work queue and informer, or controller-runtime's priority queue and controller,
// once on one of windlass-bench's cases, and prints the result as one line of JSON.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"runtime"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// Queue has the methods that the cases need and both rivals offer.
type Queue interface {
	Add(int)
	AddAfter(int, time.Duration)
	Get() (int, bool)
	Done(int)
	ShutDown()
}

var rivals = map[string]func() Queue{
	"client-go": func() Queue {
		return workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[int]())
	},
	"controller-runtime": func() Queue { return priorityqueue.New[int]("") },
}

// Measurement has the values of bench/src/measure.rs.
type Measurement struct {
	Nanos       float64 `json:"nanos"`       // per operation
	Allocations float64 `json:"allocations"` // per operation
}

func main() {
	rival := flag.String("rival", "client-go", "queue, or variant of the cache, to measure")
	name := flag.String("case", "cycle", "case to measure")
	serve := flag.String("serve", "", "serve the pods of this file instead of measuring")
	source := flag.String("source", "", "measure the cache with this server or this file of pods")
	cluster := flag.String("cluster", "", "measure the controller on the cluster of this kubeconfig")
	number := flag.String("number", "1", "parameter of the controller's case, such as the number of workers")
	webhooks := flag.String("webhooks", "", "serve webhooks at this address instead of measuring")
	certificates := flag.String("certificates", "", "folder with the certificate of the webhooks")
	flag.Parse()
	if *webhooks != "" {
		serveWebhooks(*webhooks, *certificates)
		return
	}
	if *cluster != "" {
		must(json.NewEncoder(os.Stdout).Encode(measureReconcile(*name, *number, *cluster)))
		return
	}
	if *serve != "" {
		servePods(*serve)
		return
	}
	if *source != "" {
		must(json.NewEncoder(os.Stdout).Encode(measureCache(*rival, *name, *source)))
		return
	}
	queue, ok := rivals[*rival]
	if !ok {
		fail("unknown rival %q", *rival)
	}
	run, ok := cases[*name]
	if !ok {
		fail("unknown case %q", *name)
	}
	if err := json.NewEncoder(os.Stdout).Encode(run(queue)); err != nil {
		fail("%v", err)
	}
}

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(2)
}

var cases = map[string]func(func() Queue) Measurement{
	"cycle":   cycle,
	"million": million,
	"delayed": delayed,
	"crowd":   crowd,
}

func cycle(queue func() Queue) Measurement {
	const keys = 1000
	q := queue()
	return measure(keys, func() {}, func() {
		for i := range keys {
			q.Add(i)
		}
		for range keys {
			key, _ := q.Get()
			q.Done(key)
		}
	})
}

func million(queue func() Queue) Measurement {
	const keys = 1_000_000
	var q Queue
	prepare := func() {
		if q != nil {
			q.ShutDown()
		}
		q = queue()
		runtime.GC()
	}
	return measure(keys, prepare, func() {
		for i := range keys {
			q.Add(i)
		}
	})
}

func delayed(queue func() Queue) Measurement {
	const keys = 1000
	delays := make([]time.Duration, keys)
	random := rand.New(rand.NewSource(1))
	for i := range delays {
		delays[i] = time.Minute + time.Duration(random.Int63n(int64(10*time.Minute)))
	}
	var q Queue
	prepare := func() {
		if q != nil {
			q.ShutDown()
		}
		q = queue()
	}
	return measure(keys, prepare, func() {
		for i, delay := range delays {
			q.AddAfter(i, delay)
		}
	})
}

func crowd(queue func() Queue) Measurement {
	const producers, workers, each = 8, 8, 25_000
	var q Queue
	prepare := func() {
		if q != nil {
			q.ShutDown()
		}
		q = queue()
		runtime.GC()
	}
	return measure(producers*each, prepare, func() {
		// Workers of the previous round may still be using its queue.
		q := q
		var left sync.WaitGroup
		left.Add(producers * each)
		for p := range producers {
			go func() {
				for i := range each {
					q.Add(p*each + i)
				}
			}()
		}
		for range workers {
			go func() {
				for {
					key, shutdown := q.Get()
					if shutdown {
						return
					}
					q.Done(key)
					left.Done()
				}
			}()
		}
		left.Wait()
	})
}

// measure runs a case once to warm up and then for at least a quarter of a second. prepare is not measured.
func measure(operations int, prepare, run func()) Measurement {
	prepare()
	run()
	var spent time.Duration
	var allocations uint64
	rounds := 0
	for spent < 250*time.Millisecond {
		prepare()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		run()
		spent += time.Since(start)
		runtime.ReadMemStats(&after)
		allocations += after.Mallocs - before.Mallocs
		rounds++
	}
	total := float64(operations * rounds)
	return Measurement{Nanos: float64(spent.Nanoseconds()) / total, Allocations: float64(allocations) / total}
}
