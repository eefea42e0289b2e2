//go:build record

package cel

import (
	"context"
	"encoding/json"
	"sort"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/features"
	"k8s.io/apiextensions-apiserver/pkg/recorded"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/warning"
)

// Compile stands before the function that record renames.
func Compile(s *schema.Structural, declType *apiservercel.DeclType, perCallLimit uint64, baseEnvSet *environment.EnvSet, envLoader EnvLoader) ([]CompilationResult, error) {
	results, err := compileUnrecorded(s, declType, perCallLimit, baseEnvSet, envLoader)
	if len(s.XValidations) == 0 {
		return results, err
	}
	line := map[string]any{
		"schema": s.ToKubeOpenAPI(), "root": isRoot(s, declType), "perCallLimit": perCallLimit, "error": nil, "results": nil,
		"otherEnvironment": baseEnvSet != environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()),
	}
	if err != nil {
		line["error"] = err.Error()
	}
	rules := []map[string]any{}
	for i, result := range results {
		rule := s.XValidations[i]
		rules = append(rules, map[string]any{
			"rule": rule.Rule, "messageExpression": rule.MessageExpression, "optionalOldSelf": rule.OptionalOldSelf,
			"fieldPath": rule.FieldPath, "error": compileError(result.Error), "messageExpressionError": compileError(result.MessageExpressionError),
			"usesOldSelf": result.UsesOldSelf, "maxCost": result.MaxCost, "maxCardinality": result.MaxCardinality,
			"messageExpressionMaxCost": result.MessageExpressionMaxCost, "normalizedFieldPath": result.NormalizedRuleFieldPath,
		})
	}
	line["results"] = rules
	recorded.Write("compile", line)
	return results, err
}

func compileError(err *apiservercel.Error) any {
	if err == nil {
		return nil
	}
	return map[string]string{"type": string(err.Type), "detail": err.Detail}
}

// isRoot compares with the type that the schema alone has: the root of a resource also has apiVersion, kind and metadata.
func isRoot(s *schema.Structural, declType *apiservercel.DeclType) bool {
	alone := model.SchemaDeclType(s, false)
	if declType == nil || alone == nil {
		return false
	}
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		_, has := declType.Fields[name]
		_, hasAlone := alone.Fields[name]
		if has && !hasAlone {
			return true
		}
	}
	return false
}

var perCallLimits sync.Map

// NewValidator keeps the limit for the line of Validate.
func NewValidator(s *schema.Structural, isResourceRoot bool, perCallLimit uint64) *Validator {
	validator := newValidatorUnrecorded(s, isResourceRoot, perCallLimit)
	if validator != nil {
		perCallLimits.Store(validator, perCallLimit)
	}
	return validator
}

type warnings struct{ texts []string }

func (w *warnings) AddWarning(_, text string) { w.texts = append(w.texts, text) }

// Validate stands before the method that record renames. It calls that repeatedly, because its walk is random.
func (s *Validator) Validate(ctx context.Context, path *field.Path, sts *schema.Structural, obj, oldObj interface{}, costBudget int64, opts ...Option) (field.ErrorList, int64) {
	// The budget left for a default depends on the random order of those before it; crd-validation has their errors.
	if s != nil && ctx.Err() == nil && !strings.HasSuffix(path.String(), ".default") {
		s.record(ctx, path, sts, obj, oldObj, costBudget, opts...)
	}
	return s.validateUnrecorded(ctx, path, sts, obj, oldObj, costBudget, opts...)
}

func (s *Validator) record(ctx context.Context, path *field.Path, sts *schema.Structural, obj, oldObj interface{}, costBudget int64, opts ...Option) {
	options := options{}
	for _, option := range opts {
		option(&options)
	}
	object, oldObject := recorded.Value(obj), recorded.Value(oldObj)
	if object == nil || oldObject == nil {
		return
	}
	limit, known := perCallLimits.Load(s)
	if !known {
		limit = uint64(celconfig.PerCallLimit)
	}
	outcomes := map[string]any{}
	// Cheap calls often enough to see all orders of a small map.
	enough := 100
	for i := 0; i < enough; i++ {
		recorder := &warnings{}
		errs, remaining := s.validateUnrecorded(warning.WithWarningRecorder(ctx, recorder), path, sts, obj, oldObj, costBudget, opts...)
		sort.Strings(recorder.texts)
		outcome := map[string]any{"errors": recorded.Errors(errs), "warnings": append([]string{}, recorder.texts...), "remainingBudget": remaining}
		text, err := json.Marshal(outcome)
		if err != nil {
			return
		}
		outcomes[string(text)] = outcome
		if costBudget-remaining > 1000 {
			enough = 5
		}
		// Cancelled while it ran: depends on time.
		if strings.Contains(string(text), "operation interrupted") {
			return
		}
	}
	keys := []string{}
	for key := range outcomes {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	different := []any{}
	for _, key := range keys {
		different = append(different, outcomes[key])
	}
	recorded.Write("validate", map[string]any{
		"schema": s.Schema.ToKubeOpenAPI(), "root": s.isResourceRoot, "path": path.String(), "object": object, "oldObject": oldObject,
		"perCallLimit": limit, "budget": costBudget, "ratcheting": options.currentCorrelation != nil,
		"featureRatcheting": utilfeature.DefaultFeatureGate.Enabled(features.CRDValidationRatcheting),
		"outcomes":          different,
	})
}
