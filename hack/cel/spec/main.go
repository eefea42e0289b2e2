// Prints the self-contained conformance cases of cel-spec as JSON lines, and beside each expected result what the API
// server's environment makes of the expression.
//
//	spec FOLDER    the folder tests/simple/testdata of module cel.dev/expr
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"cel.dev/expr"
	_ "cel.dev/expr/conformance/proto2" // The files name these messages, also in cases that we skip.
	_ "cel.dev/expr/conformance/proto3"
	"cel.dev/expr/conformance/test"
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/types"
	"google.golang.org/protobuf/encoding/prototext"
	"k8s.io/apiserver/pkg/cel/environment"
	"windlass.dev/cel-cases/outcome"
)

// Extensions that Kubernetes does not have, and files about protobuf messages.
var skippedFiles = []string{"bindings_ext", "block_ext", "encoders_ext", "enums", "math_ext", "proto2", "proto2_ext", "proto3", "wrappers"}

var message = regexp.MustCompile(`TestAllTypes|NestedTestAllTypes|google\.protobuf\.[A-Z]\w*(Value|Struct|Any)\b|google\.protobuf\.(Any|Struct|Value)|cel\.expr\.|\bproto\.(has|get)Ext\b|TestRequired`)

type function struct {
	Name      string     `json:"name"`
	Overloads []overload `json:"overloads"`
}

type overload struct {
	ID        string   `json:"id"`
	Member    bool     `json:"member"`
	Arguments []string `json:"arguments"`
	Result    string   `json:"result"`
}

type testCase struct {
	File          string                   `json:"file"`
	Section       string                   `json:"section"`
	Name          string                   `json:"name"`
	Expression    string                   `json:"expression"`
	Container     string                   `json:"container,omitempty"`
	DisableCheck  bool                     `json:"disableCheck,omitempty"`
	DisableMacros bool                     `json:"disableMacros,omitempty"`
	CheckOnly     bool                     `json:"checkOnly,omitempty"`
	Variables     map[string]string        `json:"variables,omitempty"`
	Functions     []function               `json:"functions,omitempty"`
	Bindings      map[string]outcome.Value `json:"bindings,omitempty"`
	// What the specification wants: one of value, error and unknown; type with or without value.
	Value   outcome.Value `json:"value,omitempty"`
	Error   []string      `json:"error,omitempty"`
	Unknown bool          `json:"unknown,omitempty"`
	Type    string        `json:"type,omitempty"`
	// What the API server does, without the specification's expectation.
	Kubernetes outcome.Outcome `json:"kubernetes"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: spec FOLDER")
		os.Exit(2)
	}
	files, err := filepath.Glob(filepath.Join(os.Args[1], "*.textproto"))
	check(err)
	if len(files) == 0 {
		check(fmt.Errorf("no *.textproto in %s", os.Args[1]))
	}
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).NewExpressionsEnv()
	lines := outcome.NewLines(os.Stdout)
	all := 0
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".textproto")
		content, err := os.ReadFile(path)
		check(err)
		var file test.SimpleTestFile
		check(prototext.Unmarshal(content, &file))
		for _, section := range file.GetSection() {
			for _, one := range section.GetTest() {
				all++
				if slices.Contains(skippedFiles, name) || message.MatchString(one.String()) {
					continue
				}
				out, err := convert(base, one)
				if err != nil {
					fmt.Fprintf(os.Stderr, "skipped %s/%s/%s: %v\n", name, section.GetName(), one.GetName(), err)
					continue
				}
				out.File, out.Section = name, section.GetName()
				lines.Write(out)
			}
		}
	}
	lines.Flush()
	fmt.Fprintf(os.Stderr, "spec: %d of %d cases\n", lines.Count, all)
}

func convert(base *cel.Env, one *test.SimpleTest) (testCase, error) {
	out := testCase{
		Name: one.GetName(), Expression: one.GetExpr(), Container: one.GetContainer(),
		DisableCheck: one.GetDisableCheck(), DisableMacros: one.GetDisableMacros(), CheckOnly: one.GetCheckOnly(),
	}
	options := []cel.EnvOption{}
	if out.Container != "" {
		options = append(options, cel.Container(out.Container))
	}
	if out.DisableMacros {
		options = append(options, cel.ClearMacros())
	}
	for _, decl := range one.GetTypeEnv() {
		if ident := decl.GetIdent(); ident != nil {
			t, err := types.ProtoAsType(ident.GetType())
			if err != nil {
				return out, err
			}
			if out.Variables == nil {
				out.Variables = map[string]string{}
			}
			out.Variables[decl.GetName()] = t.String()
			options = append(options, cel.Variable(decl.GetName(), t))
			continue
		}
		f := function{Name: decl.GetName()}
		declared := []cel.FunctionOpt{}
		for _, o := range decl.GetFunction().GetOverloads() {
			arguments, names := []*cel.Type{}, []string{}
			for _, parameter := range o.GetParams() {
				t, err := types.ProtoAsType(parameter)
				if err != nil {
					return out, err
				}
				arguments, names = append(arguments, t), append(names, t.String())
			}
			result, err := types.ProtoAsType(o.GetResultType())
			if err != nil {
				return out, err
			}
			f.Overloads = append(f.Overloads, overload{o.GetOverloadId(), o.GetIsInstanceFunction(), names, result.String()})
			declare := decls.Overload
			if o.GetIsInstanceFunction() {
				declare = decls.MemberOverload
			}
			declared = append(declared, declare(o.GetOverloadId(), arguments, result))
		}
		out.Functions = append(out.Functions, f)
		options = append(options, cel.Function(decl.GetName(), declared...))
	}

	activation := map[string]any{}
	for name, binding := range one.GetBindings() {
		if binding.GetValue() == nil {
			return out, fmt.Errorf("binding %s is not a value", name)
		}
		value, err := cel.ProtoAsValue(types.DefaultTypeAdapter, binding.GetValue())
		if err != nil {
			return out, err
		}
		if out.Bindings == nil {
			out.Bindings = map[string]outcome.Value{}
		}
		out.Bindings[name] = outcome.Of(value)
		activation[name] = value
	}

	expect := func(value *expr.Value) error {
		if value == nil {
			return nil
		}
		v, err := cel.ProtoAsValue(types.DefaultTypeAdapter, value)
		if err != nil {
			return err
		}
		out.Value = outcome.Of(v)
		if strings.Contains(asText(out.Value), `"other":`) {
			return fmt.Errorf("no typed value for %s", asText(out.Value))
		}
		return nil
	}
	switch result := one.GetResultMatcher().(type) {
	case nil:
		out.Value = outcome.Value{"bool": true}
	case *test.SimpleTest_Value:
		if err := expect(result.Value); err != nil {
			return out, err
		}
	case *test.SimpleTest_TypedResult:
		if err := expect(result.TypedResult.GetResult()); err != nil {
			return out, err
		}
		t, err := types.ProtoAsType(result.TypedResult.GetDeducedType())
		if err != nil {
			return out, err
		}
		out.Type = t.String()
	case *test.SimpleTest_EvalError:
		for _, status := range result.EvalError.GetErrors() {
			out.Error = append(out.Error, status.GetMessage())
		}
	case *test.SimpleTest_Unknown, *test.SimpleTest_AnyUnknowns:
		out.Unknown = true
	default:
		return out, fmt.Errorf("unexpected result matcher %T", result)
	}

	env, err := base.Extend(options...)
	if err != nil {
		return out, err
	}
	out.Kubernetes = outcome.Evaluate(env, out.Expression, activation, outcome.Options{SkipCheck: out.DisableCheck, SkipRun: out.CheckOnly})
	return out, nil
}

func asText(value any) string {
	out, err := json.Marshal(value)
	check(err)
	return string(out)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "spec:", err)
		os.Exit(1)
	}
}
