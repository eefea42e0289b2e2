// Package outcome turns what cel-go returns into JSON that says the type of each value, and evaluates one expression the
// way the API server does.
package outcome

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"sort"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// Value is a JSON object with one key, the type of the value: {"int": "1"}. The README lists all of them.
type Value map[string]any

// Of describes a result. Maps are sorted by key, because Go's order is random.
func Of(value ref.Val) Value {
	switch v := value.(type) {
	case types.Null:
		return Value{"null": nil}
	case types.Bool:
		return Value{"bool": bool(v)}
	case types.Int:
		return Value{"int": strconv.FormatInt(int64(v), 10)}
	case types.Uint:
		return Value{"uint": strconv.FormatUint(uint64(v), 10)}
	case types.Double:
		return Value{"double": double(float64(v))}
	case types.String:
		if !utf8.ValidString(string(v)) {
			return Value{"invalidString": base64.StdEncoding.EncodeToString([]byte(v))}
		}
		return Value{"string": string(v)}
	case types.Bytes:
		return Value{"bytes": base64.StdEncoding.EncodeToString(v)}
	case types.Timestamp:
		return Value{"timestamp": v.Time.UTC().Format(time.RFC3339Nano)}
	case types.Duration:
		return Value{"duration": strconv.FormatInt(int64(v.Duration), 10)}
	case *types.Optional:
		if !v.HasValue() {
			return Value{"optional": nil}
		}
		return Value{"optional": Of(v.GetValue())}
	case *types.Type:
		return Value{"type": v.String()}
	case *types.Err:
		return Value{"error": v.Error()}
	case apiservercel.URL:
		return Value{"url": v.URL.String()}
	case apiservercel.Quantity:
		return Value{"quantity": v.Quantity.String()}
	case *apiservercel.Quantity: // What add and sub return.
		return Value{"quantity": v.Quantity.String()}
	case apiservercel.IP:
		return Value{"ip": v.Addr.String()}
	case apiservercel.CIDR:
		return Value{"cidr": v.Prefix.String()}
	case apiservercel.Semver:
		return Value{"semver": v.Version.String()}
	case apiservercel.Format:
		return Value{"format": v.Name}
	case *apiservercel.Format:
		return Value{"format": v.Name}
	case traits.Lister:
		items := []Value{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			items = append(items, Of(it.Next()))
		}
		return Value{"list": items}
	case traits.Mapper:
		entries := [][2]Value{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			// Objects iterate over all fields, but only those in the schema have a key and can be read.
			if key == nil {
				continue
			}
			if value, found := v.Find(key); found && value != nil {
				entries = append(entries, [2]Value{Of(key), Of(value)})
			}
		}
		sort.Slice(entries, func(i, j int) bool { return text(entries[i][0]) < text(entries[j][0]) })
		return Value{"map": entries}
	}
	return Value{"other": value.Type().TypeName()}
}

// In is the inverse of Of for the kinds of values that our own variables and cel-spec's bindings have.
func In(value Value) (ref.Val, error) {
	if len(value) != 1 {
		return nil, fmt.Errorf("a value has one key, its type: %v", value)
	}
	for kind, inner := range value {
		switch kind {
		case "null":
			return types.NullValue, nil
		case "bool":
			return types.Bool(inner.(bool)), nil
		case "int":
			n, err := strconv.ParseInt(inner.(string), 10, 64)
			return types.Int(n), err
		case "uint":
			n, err := strconv.ParseUint(inner.(string), 10, 64)
			return types.Uint(n), err
		case "double":
			n, err := strconv.ParseFloat(inner.(string), 64)
			return types.Double(n), err
		case "string":
			return types.String(inner.(string)), nil
		case "bytes":
			b, err := base64.StdEncoding.DecodeString(inner.(string))
			return types.Bytes(b), err
		case "timestamp":
			t, err := time.Parse(time.RFC3339Nano, inner.(string))
			return types.Timestamp{Time: t}, err
		case "duration":
			n, err := strconv.ParseInt(inner.(string), 10, 64)
			return types.Duration{Duration: time.Duration(n)}, err
		case "optional":
			if inner == nil {
				return types.OptionalNone, nil
			}
			v, err := in(inner)
			return types.OptionalOf(v), err
		case "list":
			items := []ref.Val{}
			for _, item := range inner.([]any) {
				v, err := in(item)
				if err != nil {
					return nil, err
				}
				items = append(items, v)
			}
			return types.NewRefValList(types.DefaultTypeAdapter, items), nil
		case "map":
			entries := map[ref.Val]ref.Val{}
			for _, entry := range inner.([]any) {
				k, err := in(entry.([]any)[0])
				if err != nil {
					return nil, err
				}
				v, err := in(entry.([]any)[1])
				if err != nil {
					return nil, err
				}
				entries[k] = v
			}
			return types.NewRefValMap(types.DefaultTypeAdapter, entries), nil
		}
	}
	return nil, fmt.Errorf("unknown type of value: %v", value)
}

func in(value any) (ref.Val, error) {
	object, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("a value is an object with one key, its type: %v", value)
	}
	return In(object)
}

func double(n float64) string {
	switch {
	case math.IsNaN(n):
		return "NaN"
	case math.IsInf(n, 1):
		return "inf"
	case math.IsInf(n, -1):
		return "-inf"
	}
	return strconv.FormatFloat(n, 'g', -1, 64)
}

func text(value Value) string {
	out, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(out)
}
