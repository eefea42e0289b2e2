// Prints the CEL environment that the API server gives to new expressions: macros, functions, variables, types.
package main

import (
	"cmp"
	"encoding/json"
	"os"
	"slices"

	"github.com/google/cel-go/common/types"
	"k8s.io/apiserver/pkg/cel/environment"
)

type overload struct {
	ID         string   `json:"id"`
	Function   string   `json:"function"`
	Member     bool     `json:"member"`
	Arguments  []string `json:"arguments"`
	Result     string   `json:"result"`
	TypeParams []string `json:"typeParams"`
	NonStrict  bool     `json:"nonStrict"`
}

type macro struct {
	Function string `json:"function"`
	// -1 for any number.
	Arguments int  `json:"arguments"`
	Receiver  bool `json:"receiver"`
}

type variable struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

func main() {
	env := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).NewExpressionsEnv()

	overloads := []overload{}
	named := map[string]bool{}
	for name, function := range env.Functions() {
		for _, o := range function.OverloadDecls() {
			arguments := []string{}
			for _, argument := range o.ArgTypes() {
				arguments = append(arguments, argument.String())
				collect(argument, named)
			}
			collect(o.ResultType(), named)
			parameters := append([]string{}, o.TypeParams()...)
			slices.Sort(parameters)
			overloads = append(overloads, overload{
				ID: o.ID(), Function: name, Member: o.IsMemberFunction(), Arguments: arguments,
				Result: o.ResultType().String(), TypeParams: parameters, NonStrict: o.IsNonStrict(),
			})
		}
	}
	// Stable: the overloads of a function stay in the order of their declaration, in which the checker tries them.
	slices.SortStableFunc(overloads, func(a, b overload) int { return cmp.Compare(a.Function, b.Function) })

	macros := []macro{}
	for _, m := range env.Macros() {
		arguments := m.ArgCount()
		if m.MacroKey() == m.Function()+":*:"+map[bool]string{true: "true", false: "false"}[m.IsReceiverStyle()] {
			arguments = -1
		}
		macros = append(macros, macro{m.Function(), arguments, m.IsReceiverStyle()})
	}
	slices.SortFunc(macros, func(a, b macro) int {
		return cmp.Or(cmp.Compare(a.Function, b.Function), cmp.Compare(a.Arguments, b.Arguments))
	})

	variables := []variable{}
	for _, v := range env.Variables() {
		variables = append(variables, variable{v.Name(), v.Type().String()})
	}
	slices.SortFunc(variables, func(a, b variable) int { return cmp.Compare(a.Name, b.Name) })

	typeNames := []string{}
	for name := range named {
		typeNames = append(typeNames, name)
	}
	slices.Sort(typeNames)

	libraries := env.Libraries()
	slices.Sort(libraries)
	validators := []string{}
	for _, v := range env.Validators() {
		validators = append(validators, v.Name())
	}

	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(map[string]any{
		"version": environment.DefaultCompatibilityVersion().String(), "libraries": libraries, "validators": validators,
		"macros": macros, "overloads": overloads, "variables": variables, "types": typeNames,
	}); err != nil {
		panic(err)
	}
}

// collect adds the names of all types in a type, without type parameters.
func collect(t *types.Type, named map[string]bool) {
	if t.Kind() == types.TypeParamKind {
		return
	}
	named[t.TypeName()] = true
	for _, parameter := range t.Parameters() {
		collect(parameter, named)
	}
}
