//go:build record

// Package recorded writes calls as JSON lines. record copies it into a copy of upstream's module, whose tests make the
// calls.
package recorded

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

var mutex sync.Mutex

// The server names the type of self after the nanoseconds of its clock.
var selfType = regexp.MustCompile(`selfType\d+`)

// Write appends a line to the file of this kind in the folder WINDLASS_RECORD. Test binaries run at the same time; a
// line is one write.
func Write(kind string, line map[string]any) {
	folder := os.Getenv("WINDLASS_RECORD")
	if folder == "" {
		return
	}
	line["test"] = test()
	text := selfType.ReplaceAll(encode(line), []byte("selfType1"))
	mutex.Lock()
	defer mutex.Unlock()
	file, err := os.OpenFile(folder+"/"+kind+".jsonl", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	if _, err := file.Write(append(text, '\n')); err != nil {
		panic(err)
	}
}

// Value is JSON in which a Go float stays one: 1.0. It returns nil for what is not JSON.
func Value(value any) json.RawMessage {
	switch v := value.(type) {
	case float64:
		text := strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(text, ".eIN") {
			text += ".0"
		}
		if !json.Valid([]byte(text)) {
			return nil
		}
		return json.RawMessage(text)
	case float32:
		return Value(float64(v))
	case []any:
		parts := [][]byte{}
		for _, item := range v {
			part := Value(item)
			if part == nil {
				return nil
			}
			parts = append(parts, part)
		}
		return append(append([]byte("["), bytes.Join(parts, []byte(","))...), ']')
	case map[string]any:
		keys := []string{}
		for key := range v {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		parts := [][]byte{}
		for _, key := range keys {
			part := Value(v[key])
			if part == nil {
				return nil
			}
			parts = append(parts, append(append(encode(key), ':'), part...))
		}
		return append(append([]byte("{"), bytes.Join(parts, []byte(","))...), '}')
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	return text
}

// Errors are sorted, because Go walks maps in a random order.
func Errors(list field.ErrorList) []map[string]string {
	out := []map[string]string{}
	for _, err := range list {
		out = append(out, map[string]string{"type": string(err.Type), "field": err.Field, "text": err.Error()})
	}
	sort.SliceStable(out, func(i, j int) bool {
		if out[i]["field"] != out[j]["field"] {
			return out[i]["field"] < out[j]["field"]
		}
		return out[i]["text"] < out[j]["text"]
	})
	return out
}

func encode(value any) []byte {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(fmt.Sprintf("%v: %#v", err, value))
	}
	return bytes.TrimSpace(buffer.Bytes())
}

// test is the name of the test function that called.
func test() string {
	pointers := make([]uintptr, 100)
	frames := runtime.CallersFrames(pointers[:runtime.Callers(0, pointers)])
	name := ""
	for {
		frame, more := frames.Next()
		short := frame.Function[strings.LastIndexByte(frame.Function, '/')+1:]
		if parts := strings.Split(short, "."); len(parts) > 1 && strings.HasPrefix(parts[1], "Test") {
			name = parts[0] + "." + parts[1]
		}
		if !more {
			return name
		}
	}
}
