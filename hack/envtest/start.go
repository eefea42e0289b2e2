// Measures envtest's control plane: the time to start and stop it, and the memory of its processes.
//
//	start NAME ASSETS
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const rounds = 5

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: start NAME ASSETS")
		os.Exit(2)
	}
	log.SetLogger(logr.Discard())
	name, assets := os.Args[1], os.Args[2]
	for range rounds {
		if err := round(name, assets); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func round(name, assets string) error {
	environment := &envtest.Environment{BinaryAssetsDirectory: assets}
	began := time.Now()
	if _, err := environment.Start(); err != nil {
		return fmt.Errorf("cannot start %s: %w", name, err)
	}
	started := time.Since(began)
	memory, err := children()
	if err != nil {
		return err
	}
	began = time.Now()
	if err := environment.Stop(); err != nil {
		return fmt.Errorf("cannot stop %s: %w", name, err)
	}
	stopped := time.Since(began)
	fmt.Printf("%-9s start %5d ms  stop %5d ms  memory %6.1f MB (%s)\n",
		name, started.Milliseconds(), stopped.Milliseconds(), memory.total, memory.parts)
	return nil
}

type usage struct {
	total float64
	parts string
}

// children returns the resident memory of this process's children, from Linux's /proc.
func children() (usage, error) {
	files, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		return usage{}, err
	}
	var found usage
	var parts []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // The process has exited.
		}
		fields := map[string]string{}
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(line, ":"); ok {
				fields[key] = strings.TrimSpace(value)
			}
		}
		if fields["PPid"] != strconv.Itoa(os.Getpid()) {
			continue
		}
		kilobytes, err := strconv.ParseFloat(strings.TrimSuffix(fields["VmRSS"], " kB"), 64)
		if err != nil {
			continue // The process is a zombie.
		}
		found.total += kilobytes / 1024
		parts = append(parts, fmt.Sprintf("%s %.1f", fields["Name"], kilobytes/1024))
	}
	found.parts = strings.Join(parts, ", ")
	return found, nil
}
