// Command types prints, as JSON, the Go types of the built-in kinds' fields. They determine how the real server decodes
// a body, and its OpenAPI documents do not contain them.
//
//	{"io.k8s.api.apps.v1.DeploymentSpec": {"replicas": "*int32,omitempty", ...}, ...}
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

type fields map[string]string

func main() {
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, apiextensions.AddToScheme, apiregistration.AddToScheme,
	} {
		if err := add(kinds); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	found := map[string]fields{}
	for _, kind := range kinds.AllKnownTypes() {
		visit(kind, found)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func visit(t reflect.Type, found map[string]fields) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		visit(t.Elem(), found)
	case reflect.Struct:
		name := schemaName(t)
		if _, done := found[name]; done {
			return
		}
		found[name] = fields{}
		collect(t, "", found[name], found)
	}
}

// collect adds the JSON fields of a struct, including those of embedded structs: the decoder's errors name the embedded
// struct of a field.
func collect(t reflect.Type, embedded string, own fields, found map[string]fields) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" || !field.IsExported():
		case name == "" && field.Anonymous:
			inner := field.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if inner.Kind() == reflect.Struct {
				collect(inner, field.Name, own, found)
			}
		case name != "":
			text := field.Type.String()
			// omitempty never omits an empty struct; omitzero does.
			for _, omit := range []string{"omitempty", "omitzero"} {
				if strings.Contains(options, omit) {
					text += "," + omit
				}
			}
			if embedded != "" && embedded != "TypeMeta" {
				text += ",in:" + embedded
			}
			own[name] = text
			visit(field.Type, found)
		}
	}
}

// schemaName returns the name of a struct's schema in the OpenAPI documents.
func schemaName(t reflect.Type) string {
	host, rest, _ := strings.Cut(t.PkgPath(), "/")
	parts := strings.Split(host, ".")
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return strings.Join(parts, ".") + "." + strings.ReplaceAll(rest, "/", ".") + "." + t.Name()
}
