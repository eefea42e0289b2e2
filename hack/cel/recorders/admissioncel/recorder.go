//go:build record

package cel

import (
	"context"
	"encoding/json"

	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/outcome"
	"k8s.io/apiserver/pkg/recorded"
)

// CompileCELExpression stands before the method that record renames.
func (c compiler) CompileCELExpression(accessor ExpressionAccessor, options OptionalVariableDeclarations, envType environment.Type) CompilationResult {
	result := c.compileUnrecorded(accessor, options, envType)
	wanted := []string{}
	for _, t := range accessor.ReturnTypes() {
		wanted = append(wanted, t.String())
	}
	line := map[string]any{
		"expression": accessor.GetExpression(), "returnTypes": wanted, "hasParams": options.HasParams, "hasAuthorizer": options.HasAuthorizer,
		"hasPatchTypes": options.HasPatchTypes, "stored": envType == environment.StoredExpressions, "error": compileError(result.Error), "type": nil,
	}
	if result.OutputType != nil {
		line["type"] = result.OutputType.String()
	}
	recorded.Write("admission-compile", line)
	return result
}

func compileError(err *apiservercel.Error) any {
	if err == nil {
		return nil
	}
	return map[string]string{"type": string(err.Type), "detail": err.Detail}
}

// ForInput stands before the method that record renames.
func (c *condition) ForInput(ctx context.Context, attributes *admission.VersionedAttributes, request *admissionv1.AdmissionRequest, inputs OptionalVariableBindings, namespace *v1.Namespace, budget int64) ([]EvaluationResult, int64, error) {
	checks := &checks{Authorizer: inputs.Authorizer, calls: []any{}}
	if inputs.Authorizer != nil {
		inputs.Authorizer = checks
	}
	results, remaining, err := c.forInputUnrecorded(ctx, attributes, request, inputs, namespace, budget)
	if ctx.Err() != nil || attributes == nil {
		return results, remaining, err
	}
	line := map[string]any{
		"object": object(attributes.VersionedObject), "oldObject": object(attributes.VersionedOldObject), "params": object(inputs.VersionedParams),
		"request": request, "namespace": namespace, "budget": budget, "remainingBudget": remaining, "error": nil,
		"hasAuthorizer": inputs.Authorizer != nil, "authorizerChecks": checks.calls, "variables": map[string]string{},
	}
	if err != nil {
		line["error"] = err.Error()
	}
	if composition, ok := ctx.(*compositionContext); ok {
		variables := map[string]string{}
		for name, result := range composition.state.compiledVariables {
			variables[name] = result.ExpressionAccessor.GetExpression()
		}
		line["variables"] = variables
	}
	expressions := []any{}
	for i, compiled := range c.compilationResults {
		expression := map[string]any{"expression": nil, "compileError": compileError(compiled.Error), "error": nil, "value": nil}
		if compiled.ExpressionAccessor != nil {
			expression["expression"] = compiled.ExpressionAccessor.GetExpression()
		}
		if i < len(results) {
			if results[i].Error != nil {
				expression["error"] = results[i].Error.Error()
			}
			if results[i].EvalResult != nil {
				expression["value"] = outcome.Of(results[i].EvalResult)
			}
		}
		expressions = append(expressions, expression)
	}
	line["expressions"] = expressions
	if _, err := json.Marshal(line); err == nil {
		recorded.Write("admission-evaluate", line)
	}
	return results, remaining, err
}

func object(o runtime.Object) json.RawMessage {
	value, err := objectToResolveVal(o)
	if err != nil {
		return nil
	}
	return recorded.Value(value)
}

// checks keeps what the expressions asked the test's authorizer, and its decisions.
type checks struct {
	authorizer.Authorizer
	calls []any
}

func (c *checks) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, reason, err := c.Authorizer.Authorize(ctx, a)
	call := map[string]any{
		"verb": a.GetVerb(), "namespace": a.GetNamespace(), "group": a.GetAPIGroup(), "version": a.GetAPIVersion(), "resource": a.GetResource(),
		"subresource": a.GetSubresource(), "name": a.GetName(), "path": a.GetPath(), "resourceRequest": a.IsResourceRequest(), "user": "",
		"allowed": decision == authorizer.DecisionAllow, "reason": reason, "error": nil,
	}
	if user := a.GetUser(); user != nil {
		call["user"] = user.GetName()
	}
	if err != nil {
		call["error"] = err.Error()
	}
	c.calls = append(c.calls, call)
	return decision, reason, err
}
