package outcome

import (
	"context"
	"fmt"
	"sort"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/library"
)

// Maps have a random order in Go, and not an even one. An expression that depends on it shows that in some of this many
// evaluations; then it is evaluated often enough to see all orders of a small map.
const (
	evaluations    = 200
	allEvaluations = 2000
	// Expensive expressions are evaluated less often.
	cheap             = 500
	costlyEvaluations = 20
	onlyOnceFrom      = celconfig.PerCallLimit / 100
)

// Outcome is what becomes of an expression: an error of parser, checker or planner, or a type, an estimate and one run.
type Outcome struct {
	ParseError   string    `json:"parseError,omitempty"`
	CheckError   string    `json:"checkError,omitempty"`
	ProgramError string    `json:"programError,omitempty"`
	Type         string    `json:"type,omitempty"`
	Estimate     *Estimate `json:"estimate,omitempty"`
	*Run
	// Upstream panicked; the API server answers such a request with 500.
	Panic *Panic `json:"panic,omitempty"`
	// Set instead of Run if the runs differ: all different ones, sorted.
	Varies []Run `json:"varies,omitempty"`
}

// Panic says where: parse, check, estimate, program or run.
type Panic struct {
	Phase string `json:"phase"`
	Text  string `json:"text"`
}

// Estimate is the cost that the server computes before it accepts an expression.
type Estimate struct {
	Min uint64 `json:"min"`
	Max uint64 `json:"max"`
}

// Run is one evaluation. Cost is absent if the server could not know it.
type Run struct {
	Value Value   `json:"value,omitempty"`
	Error string  `json:"error,omitempty"`
	Cost  *uint64 `json:"cost,omitempty"`
}

// Options of one evaluation.
type Options struct {
	// Sizes of variables, for the estimate.
	Sizes checker.CostEstimator
	// Evaluates what the parser returns, as cel-spec's cases with disable_check want it.
	SkipCheck bool
	// The type is enough.
	SkipRun bool
}

// Evaluate compiles and runs an expression like a validation rule of a CustomResourceDefinition, whatever its type.
func Evaluate(env *cel.Env, expression string, variables any, options Options) (out Outcome) {
	phase := "parse"
	defer func() {
		if panicked := recover(); panicked != nil {
			out.Panic = &Panic{phase, fmt.Sprint(panicked)}
		}
	}()
	ast, issues := env.Parse(expression)
	if issues.Err() != nil {
		return Outcome{ParseError: issues.String()}
	}
	estimator := &library.CostEstimator{SizeEstimator: options.Sizes}
	if !options.SkipCheck {
		phase = "check"
		checked, issues := env.Check(ast)
		if issues.Err() != nil {
			return Outcome{CheckError: issues.String()}
		}
		ast = checked
		out.Type = ast.OutputType().String()
		phase = "estimate"
		cost, err := env.EstimateCost(ast, estimator)
		if err != nil {
			return Outcome{ProgramError: err.Error()}
		}
		out.Estimate = &Estimate{cost.Min, cost.Max}
	}
	if options.SkipRun {
		return out
	}
	phase = "program"
	program, err := env.Program(ast, cel.CostLimit(celconfig.PerCallLimit), cel.CostTracking(estimator), cel.InterruptCheckFrequency(celconfig.CheckFrequency))
	if err != nil {
		out.ProgramError = err.Error()
		return out
	}

	phase = "run"
	runs := map[string]Run{}
	for i := range allEvaluations {
		run := run(program, variables)
		runs[text(Value{"": run})] = run
		enough := evaluations
		switch {
		case run.Cost != nil && *run.Cost >= onlyOnceFrom:
			enough = 1
		case run.Cost != nil && *run.Cost >= cheap:
			enough = costlyEvaluations
		}
		if i+1 >= enough && len(runs) == 1 {
			break
		}
	}
	if len(runs) == 1 {
		for _, run := range runs {
			out.Run = &run
		}
		return out
	}
	keys := []string{}
	for key := range runs {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	for _, key := range keys {
		out.Varies = append(out.Varies, runs[key])
	}
	return out
}

func run(program cel.Program, variables any) (out Run) {
	value, details, err := program.ContextEval(context.Background(), variables)
	if details != nil {
		out.Cost = details.ActualCost()
	}
	if err != nil {
		out.Error = err.Error()
		return out
	}
	out.Value = Of(value)
	return out
}
