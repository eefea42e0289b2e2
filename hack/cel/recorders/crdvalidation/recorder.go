//go:build record

package validation

import (
	"context"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/recorded"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateCustomResourceDefinition stands before the function that record renames.
func ValidateCustomResourceDefinition(ctx context.Context, obj *apiextensions.CustomResourceDefinition) field.ErrorList {
	if external, internal, ok := roundTrip(obj); ok {
		recorded.Write("crd-validation", map[string]any{
			"operation": "create", "object": external, "oldObject": nil,
			"errors":  recorded.Errors(validateUnrecorded(ctx, internal)),
			"inTests": recorded.Errors(validateUnrecorded(ctx, obj)),
		})
	}
	return validateUnrecorded(ctx, obj)
}

// ValidateCustomResourceDefinitionUpdate stands before the function that record renames.
func ValidateCustomResourceDefinitionUpdate(ctx context.Context, obj, oldObj *apiextensions.CustomResourceDefinition) field.ErrorList {
	external, internal, ok := roundTrip(obj)
	oldExternal, oldInternal, oldOK := roundTrip(oldObj)
	if ok && oldOK {
		recorded.Write("crd-validation", map[string]any{
			"operation": "update", "object": external, "oldObject": oldExternal,
			"errors":  recorded.Errors(validateUpdateUnrecorded(ctx, internal, oldInternal)),
			"inTests": recorded.Errors(validateUpdateUnrecorded(ctx, obj, oldObj)),
		})
	}
	return validateUpdateUnrecorded(ctx, obj, oldObj)
}

// roundTrip converts to v1, which clients send, and back. Tests also pass objects that no v1 object becomes.
func roundTrip(obj *apiextensions.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, *apiextensions.CustomResourceDefinition, bool) {
	var external apiextensionsv1.CustomResourceDefinition
	if err := apiextensionsv1.Convert_apiextensions_CustomResourceDefinition_To_v1_CustomResourceDefinition(obj.DeepCopy(), &external, nil); err != nil {
		return nil, nil, false
	}
	var internal apiextensions.CustomResourceDefinition
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(external.DeepCopy(), &internal, nil); err != nil {
		return nil, nil, false
	}
	return &external, &internal, true
}
