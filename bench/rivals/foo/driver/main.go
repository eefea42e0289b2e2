//go:build ignore

// This replaces main of k8s.io/sample-controller for the benchmark: the same controller with the same two workers, but
// without the clients' limit of five requests per second, and without logs.
package main

import (
	"context"
	"os"
	"time"

	"github.com/go-logr/logr"
	coreinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	foos "k8s.io/sample-controller/pkg/generated/clientset/versioned"
	fooinformers "k8s.io/sample-controller/pkg/generated/informers/externalversions"
)

func main() {
	klog.SetLogger(logr.Discard())
	config := &rest.Config{Host: os.Args[1], QPS: -1}
	core := kubernetes.NewForConfigOrDie(config)
	own := foos.NewForConfigOrDie(config)
	const resync = 30 * time.Second
	coreFactory := coreinformers.NewSharedInformerFactory(core, resync)
	ownFactory := fooinformers.NewSharedInformerFactory(own, resync)
	ctx := klog.NewContext(context.Background(), logr.Discard())
	controller := NewController(ctx, core, own,
		coreFactory.Apps().V1().Deployments(), ownFactory.Samplecontroller().V1alpha1().Foos())
	coreFactory.Start(ctx.Done())
	ownFactory.Start(ctx.Done())
	if err := controller.Run(ctx, 2); err != nil {
		panic(err)
	}
}
