package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Measurements are the measured values by name, as in bench/src/cases.rs; a case omits values that it does not measure.
type Measurements map[string]float64

const eventsSent = 100_000

func podScheme() *kruntime.Scheme {
	scheme := kruntime.NewScheme()
	must(corev1.AddToScheme(scheme))
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	return scheme
}

func must(err error) {
	if err != nil {
		fail("%v", err)
	}
}

func readPods(file string) (raw [][]byte, pods []corev1.Pod) {
	f, err := os.Open(file)
	must(err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		raw = append(raw, bytes.Clone(lines.Bytes()))
		var pod corev1.Pod
		must(json.Unmarshal(lines.Bytes(), &pod))
		pods = append(pods, pod)
	}
	must(lines.Err())
	return raw, pods
}

// servePods serves lists of the pods in a file, in pages, as JSON or protobuf, encoded before the first request. Watches
// send no events. It rejects watch lists, so that every client lists.
func servePods(file string) {
	raw, pods := readPods(file)
	encoder := protobuf.NewSerializer(podScheme(), podScheme())
	const size = 500
	var asJSON, asProtobuf [][]byte
	for start := 0; start < len(pods); start += size {
		end := min(start+size, len(pods))
		meta := metav1.ListMeta{ResourceVersion: "1000000"}
		if end < len(pods) {
			meta.Continue = strconv.Itoa(end)
		}
		list := &corev1.PodList{ListMeta: meta, Items: pods[start:end]}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		var page bytes.Buffer
		must(encoder.Encode(list, &page))
		asProtobuf = append(asProtobuf, page.Bytes())
		head, _ := json.Marshal(meta)
		asJSON = append(asJSON, fmt.Appendf(nil, `{"kind":"PodList","apiVersion":"v1","metadata":%s,"items":[%s]}`, head, bytes.Join(raw[start:end], []byte(","))))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	fmt.Printf("http://%s\n", listener.Addr())
	must(http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		switch {
		case query.Get("sendInitialEvents") == "true":
			http.Error(w, "lists only", http.StatusUnprocessableEntity)
		case query.Get("watch") == "true" || query.Get("watch") == "1":
			w.Header().Set("Content-Type", r.Header.Get("Accept"))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			start, _ := strconv.Atoi(query.Get("continue"))
			pages, kind := asJSON, "application/json"
			if bytes.Contains([]byte(r.Header.Get("Accept")), []byte("protobuf")) {
				pages, kind = asProtobuf, "application/vnd.kubernetes.protobuf"
			}
			w.Header().Set("Content-Type", kind)
			w.Write(pages[start/size])
		}
	})))
}

func measureCache(rival, name, source string) Measurements {
	switch name {
	case "sync", "sync-real":
		return syncPods(source, rival == "client-go JSON")
	case "events":
		return podEvents(source, 0, 0)
	case "events-of-few":
		return podEvents(source, 500, 0)
	case "events-10-readers":
		return podEvents(source, 0, 10)
	case "events-of-few-10-readers":
		return podEvents(source, 500, 10)
	case "get":
		return getPods(source, rival == "client-go store")
	case "index":
		return indexPods(source)
	case "list":
		return listPods(source)
	}
	fail("unknown case %q", name)
	return nil
}

func heap() float64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}

func cpu() time.Duration {
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// peak returns the peak memory of this process in megabytes.
func peak() float64 {
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return float64(usage.Maxrss) / 1024
}

// syncPods fills a shared informer from the server: in protobuf, the default of client-go's typed clients, or in JSON, as
// for custom resources.
func syncPods(url string, inJSON bool) Measurements {
	scheme := podScheme()
	config := &rest.Config{Host: url, APIPath: "/api", QPS: -1}
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	if inJSON {
		config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	}
	client, err := rest.RESTClientFor(config)
	must(err)
	list := func(options metav1.ListOptions) (kruntime.Object, error) {
		pods := &corev1.PodList{}
		codec := metav1.ParameterCodec
		err := client.Get().Resource("pods").VersionedParams(&options, codec).Do(context.Background()).Into(pods)
		return pods, err
	}
	follow := func(options metav1.ListOptions) (watch.Interface, error) {
		options.Watch = true
		return client.Get().Resource("pods").VersionedParams(&options, metav1.ParameterCodec).Watch(context.Background())
	}
	before, started, began := heap(), cpu(), time.Now()
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{ListFunc: list, WatchFunc: follow}, &corev1.Pod{}, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	go informer.Run(make(chan struct{}))
	for !informer.HasSynced() {
		time.Sleep(time.Millisecond)
	}
	wall, spent, most := time.Since(began), cpu()-started, peak()
	retained := heap() - before
	count := float64(len(informer.GetStore().ListKeys()))
	runtime.KeepAlive(informer)
	return Measurements{
		"wall":     wall.Seconds() * 1e3,
		"cpu":      float64(spent.Microseconds()) / count,
		"retained": retained / count,
		"peak":     most,
	}
}

// source is a list and a watch of decoded pods in memory, as in client-go's own benchmarks.
type source struct {
	pods   []corev1.Pod
	events *watch.FakeWatcher
}

func (s *source) informer() cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&cache.ListWatch{
		ListFunc: func(metav1.ListOptions) (kruntime.Object, error) {
			return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1000000"}, Items: s.pods}, nil
		},
		WatchFunc: func(metav1.ListOptions) (watch.Interface, error) { return s.events, nil },
	}, &corev1.Pod{}, 0, cache.Indexers{
		cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
		service: func(object any) ([]string, error) {
			return []string{object.(*corev1.Pod).Labels[service]}, nil
		},
	})
}

// service is the label with the name of a pod's service.
const service = "app.kubernetes.io/name"

// podEvents sends updates of the first `changing` pods in turn; 0 means all.
func podEvents(file string, changing, readers int) Measurements {
	_, pods := readPods(file)
	if changing == 0 {
		changing = len(pods)
	}
	s := &source{pods: pods, events: watch.NewFakeWithChanSize(1000, false)}
	informer := s.informer()
	var left sync.WaitGroup
	var seen atomic.Int64
	left.Add(1)
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, _ any) {
		if seen.Add(1) == eventsSent {
			left.Done()
		}
	}})
	must(err)
	go informer.Run(make(chan struct{}))
	for !informer.HasSynced() {
		time.Sleep(time.Millisecond)
	}
	for reader := range readers {
		go func() {
			for {
				_, err := informer.GetIndexer().ByIndex(cache.NamespaceIndex, fmt.Sprintf("team-%d", reader))
				must(err)
			}
		}()
	}
	// Limits the measurement of a rival that is starved by its readers.
	start, deadline := time.Now(), time.Now().Add(5*time.Second)
	go func() {
		for i := range eventsSent {
			pod := pods[i%changing]
			pod.ResourceVersion = strconv.Itoa(1_000_001 + i)
			s.events.Modify(&pod)
		}
	}()
	done := make(chan struct{})
	go func() { left.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Until(deadline)):
	}
	return Measurements{"events": float64(seen.Load()) / time.Since(start).Seconds()}
}

// filled returns an informer with the pods of a file.
func filled(file string) cache.SharedIndexInformer {
	_, pods := readPods(file)
	s := &source{pods: pods, events: watch.NewFake()}
	informer := s.informer()
	go informer.Run(make(chan struct{}))
	for !informer.HasSynced() {
		time.Sleep(time.Millisecond)
	}
	return informer
}

func each(start time.Time, count int) Measurements {
	return Measurements{"nanos": float64(time.Since(start).Nanoseconds()) / float64(count), "used": float64(used)}
}

// used accumulates a value of the pods that were read; it is printed, so that the compiler cannot remove the reads.
var used int

// getPods looks up pods as a controller does, by namespace and name through the typed lister, or in the store with keys
// that were formatted in advance.
func getPods(file string, inStore bool) Measurements {
	informer := filled(file)
	keys := informer.GetStore().ListKeys()[:200]
	names := make([]cache.ObjectName, len(keys))
	for i, key := range keys {
		name, err := cache.ParseObjectName(key)
		must(err)
		names[i] = name
	}
	store, lister := informer.GetStore(), corelisters.NewPodLister(informer.GetIndexer())
	const rounds = 5000
	start := time.Now()
	for range rounds {
		if inStore {
			for _, key := range keys {
				object, ok, _ := store.GetByKey(key)
				if !ok {
					fail("%s is missing", key)
				}
				used += len(object.(*corev1.Pod).Spec.NodeName)
			}
			continue
		}
		for _, name := range names {
			pod, err := lister.Pods(name.Namespace).Get(name.Name)
			must(err)
			used += len(pod.Spec.NodeName)
		}
	}
	return each(start, rounds*len(keys))
}

// indexPods looks up the pods of a hundred services in turn.
func indexPods(file string) Measurements {
	informer := filled(file)
	services := informer.GetIndexer().ListIndexFuncValues(service)[:100]
	const rounds = 1000
	start := time.Now()
	for range rounds {
		for _, name := range services {
			pods, err := informer.GetIndexer().ByIndex(service, name)
			if err != nil || len(pods) == 0 {
				fail("no pods of %s: %v", name, err)
			}
			for _, object := range pods {
				used += len(object.(*corev1.Pod).Spec.NodeName)
			}
		}
	}
	return each(start, rounds*len(services))
}

func listPods(file string) Measurements {
	informer := filled(file)
	lister := corelisters.NewPodLister(informer.GetIndexer())
	const rounds = 200
	start := time.Now()
	for range rounds {
		pods, err := lister.Pods("team-7").List(labels.Everything())
		if err != nil || len(pods) == 0 {
			fail("no pods of the namespace: %v", err)
		}
		for _, pod := range pods {
			used += len(pod.Spec.NodeName)
		}
	}
	return each(start, rounds)
}
