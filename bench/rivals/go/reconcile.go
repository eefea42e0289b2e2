package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// The same constants as in bench/src/reconcile/mod.rs.
const (
	benchNamespace = "bench"
	benchAlone     = "bench-alone"
	benchObjects   = 20_001
	benchMany      = 20_000
	benchFew       = 2_000
	benchTrigger   = "trigger"
	probes         = 200
)

func objectName(i int) string { return fmt.Sprintf("config-%05d", i) }

func start(kubeconfig, namespace string, workers int, build func(*ctrl.Builder, client.Client) reconcile.Reconciler) client.Client {
	ctrl.SetLogger(logr.Discard())
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must(err)
	config.QPS = -1 // no client-side limit, as in controller-runtime's own configuration
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Metrics: server.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
	})
	must(err)
	builder := ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers})
	must(builder.Complete(build(builder, manager.GetClient())))
	go func() { must(manager.Start(context.Background())) }()
	return manager.GetClient()
}

func merge(c client.Client, object client.Object, namespace, name, patch string) {
	object.SetNamespace(namespace)
	object.SetName(name)
	must(c.Patch(context.Background(), object, client.RawPatch(types.MergePatchType, []byte(patch))))
}

func measureReconcile(name, number, kubeconfig string) Measurements {
	count, err := strconv.Atoi(number)
	must(err)
	switch name {
	case "noop":
		return rounds(kubeconfig, count, benchMany, false)
	case "noop-few":
		return rounds(kubeconfig, count, benchFew, false)
	case "noop-alone":
		return alone(kubeconfig, false)
	case "write":
		return rounds(kubeconfig, count, benchMany, true)
	case "write-few":
		return rounds(kubeconfig, count, benchFew, true)
	case "write-alone":
		return alone(kubeconfig, true)
	case "wake":
		return wakes(kubeconfig, count)
	}
	fail("unknown case %q", name)
	return nil
}

// rounds reconciles the objects whenever the trigger changes. Each reconcile only reads its object, or, if writes is set,
// writes an annotation in the object's first reconcile of the round; then only those that wrote are counted.
func rounds(kubeconfig string, workers, objects int, writes bool) Measurements {
	var done, round atomic.Int64
	var first time.Time
	var guard sync.Mutex
	ended := make(chan time.Duration, 1)
	all := make([]reconcile.Request, objects)
	for i := range all {
		all[i].NamespacedName = types.NamespacedName{Namespace: benchNamespace, Name: objectName(i)}
	}
	var measuring atomic.Bool
	reconciled := func() {
		count := done.Add(1) % int64(objects)
		if !measuring.Load() || count > 1 {
			return
		}
		guard.Lock()
		defer guard.Unlock()
		if count == 1 {
			first = time.Now()
		} else {
			ended <- time.Since(first)
		}
	}
	c := start(kubeconfig, benchNamespace, workers, func(builder *ctrl.Builder, c client.Client) reconcile.Reconciler {
		builder.Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(
			func(_ context.Context, secret client.Object) []reconcile.Request {
				if secret.GetAnnotations()["round"] != fmt.Sprintf("%d-%d", os.Getpid(), round.Load()) {
					return nil
				}
				return all
			}))
		return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
			var object corev1.ConfigMap
			if err := c.Get(ctx, request.NamespacedName, &object); err != nil {
				return reconcile.Result{}, err
			}
			if writes && measuring.Load() {
				mark := fmt.Sprintf("%d-%d", os.Getpid(), round.Load())
				if object.Annotations["mark"] == mark {
					return reconcile.Result{}, nil
				}
				merge(c, &corev1.ConfigMap{}, request.Namespace, request.Name, fmt.Sprintf(`{"metadata":{"annotations":{"mark":%q}}}`, mark))
			}
			reconciled()
			return reconcile.Result{}, nil
		})
	})
	waitUntilReconciled(&done)
	done.Store(0)
	measuring.Store(true)
	var spent time.Duration
	reconciles, started := 0, cpu()
	for spent < time.Second {
		number := round.Add(1)
		merge(c, &corev1.Secret{}, benchNamespace, benchTrigger, fmt.Sprintf(`{"metadata":{"annotations":{"round":"%d-%d"}}}`, os.Getpid(), number))
		spent += <-ended
		reconciles += objects - 1
	}
	each := float64((cpu() - started).Nanoseconds()) / 1e3 / float64(reconciles)
	return Measurements{"per_second": float64(reconciles) / spent.Seconds(), "cpu": each, "peak": peak()}
}

// A process is idle if it uses at most idleCPU within idleInterval.
const (
	idleInterval = 250 * time.Millisecond
	idleCPU      = 10 * time.Millisecond
)

// waitUntilReconciled waits until every object has been reconciled and the process is idle.
func waitUntilReconciled(done *atomic.Int64) {
	for {
		before := done.Load()
		time.Sleep(idleInterval)
		if now := done.Load(); now >= benchObjects && now == before {
			break
		}
	}
	waitUntilIdle()
}

// waitUntilIdle waits until the process is idle, including the garbage collector.
func waitUntilIdle() {
	for range 120 {
		before := cpu()
		time.Sleep(idleInterval)
		if cpu()-before <= idleCPU {
			return
		}
	}
	fail("the controller does not become idle")
}

// alone reconciles a single object repeatedly: each reconcile reads it and requeues it immediately, or writes an
// annotation, which triggers the next.
func alone(kubeconfig string, writes bool) Measurements {
	var done atomic.Int64
	start(kubeconfig, benchAlone, 1, func(_ *ctrl.Builder, c client.Client) reconcile.Reconciler {
		return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
			var object corev1.ConfigMap
			if err := c.Get(ctx, request.NamespacedName, &object); err != nil {
				return reconcile.Result{}, err
			}
			count := done.Add(1)
			if writes {
				merge(c, &corev1.ConfigMap{}, request.Namespace, request.Name,
					fmt.Sprintf(`{"metadata":{"annotations":{"mark":"%d-%d"}}}`, os.Getpid(), count))
				return reconcile.Result{}, nil
			}
			return reconcile.Result{RequeueAfter: time.Nanosecond}, nil
		})
	})
	time.Sleep(500 * time.Millisecond)
	started, began, before := cpu(), time.Now(), done.Load()
	time.Sleep(time.Second)
	reconciles := float64(done.Load() - before)
	each := float64((cpu() - started).Nanoseconds()) / 1e3 / reconciles
	return Measurements{"per_second": reconciles / time.Since(began).Seconds(), "cpu": each, "peak": peak()}
}

// wakes changes one object while inFlight others are being reconciled.
func wakes(kubeconfig string, inFlight int) Measurements {
	var flying, idle atomic.Int64
	var measuring atomic.Bool
	started := make(chan time.Time, 1)
	probe := objectName(benchObjects - 1)
	c := start(kubeconfig, benchNamespace, inFlight+1, func(*ctrl.Builder, client.Client) reconcile.Reconciler {
		return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
			now := time.Now()
			if request.Name == probe {
				if measuring.Load() {
					started <- now
				}
				return reconcile.Result{}, nil
			}
			if request.Name < objectName(inFlight) {
				flying.Add(1)
				<-ctx.Done()
			}
			idle.Add(1)
			return reconcile.Result{}, nil
		})
	})
	for flying.Load() < int64(inFlight) || idle.Load() < int64(benchObjects-1-inFlight) {
		time.Sleep(10 * time.Millisecond)
	}
	waitUntilIdle()
	measuring.Store(true)
	took := make([]float64, 0, probes)
	for i := range probes {
		began := time.Now()
		merge(c, &corev1.ConfigMap{}, benchNamespace, probe, fmt.Sprintf(`{"data":{"probe":"%d-%d"}}`, os.Getpid(), i))
		took = append(took, float64((<-started).Sub(began).Nanoseconds())/1e3)
		time.Sleep(2 * time.Millisecond)
	}
	sort.Float64s(took)
	return Measurements{"p50": took[len(took)/2], "p99": took[len(took)*99/100]}
}
