package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// The same webhooks as in bench/src/webhook/ours.rs.
type pods struct{}

func (pods) check(pod *corev1.Pod) error {
	var errors field.ErrorList
	for i, container := range pod.Spec.Containers {
		path := field.NewPath("spec", "containers").Index(i)
		if !strings.HasPrefix(container.Image, "registry.example.com/") {
			errors = append(errors, field.Invalid(path.Child("image"), container.Image, "must be of registry.example.com"))
		}
		if container.Resources.Limits.Memory().IsZero() {
			errors = append(errors, field.Required(path.Child("resources", "limits", "memory"), ""))
		}
	}
	return errors.ToAggregate()
}

func (p pods) ValidateCreate(_ context.Context, pod *corev1.Pod) (admission.Warnings, error) {
	return nil, p.check(pod)
}

func (p pods) ValidateUpdate(_ context.Context, _, pod *corev1.Pod) (admission.Warnings, error) {
	return nil, p.check(pod)
}

func (pods) ValidateDelete(context.Context, *corev1.Pod) (admission.Warnings, error) { return nil, nil }

func (pods) Default(_ context.Context, pod *corev1.Pod) error {
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels["checked"] = "yes"
	return nil
}

func serveWebhooks(address, certificates string) {
	ctrl.SetLogger(logr.Discard())
	host, port, err := net.SplitHostPort(address)
	must(err)
	number, err := strconv.Atoi(port)
	must(err)
	server := webhook.NewServer(webhook.Options{Host: host, Port: number, CertDir: certificates})
	server.Register("/validate", admission.WithValidator[*corev1.Pod](scheme.Scheme, pods{}))
	server.Register("/mutate", admission.WithDefaulter[*corev1.Pod](scheme.Scheme, pods{}))
	must(server.Start(context.Background()))
	fmt.Println("stopped")
}
