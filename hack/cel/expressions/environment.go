package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"windlass.dev/cel-cases/outcome"
)

// environmentFile declares variables: by type and value, or as self and oldSelf of a schema.
type environmentFile struct {
	Variables map[string]struct {
		Type  string        `json:"type"`
		Value outcome.Value `json:"value"`
	} `json:"variables"`
	Schema json.RawMessage `json:"schema"`
	// Adds apiVersion, kind and metadata, as for the root of a custom resource.
	Root            bool            `json:"root"`
	Self            json.RawMessage `json:"self"`
	OldSelf         json.RawMessage `json:"oldSelf"`
	OptionalOldSelf bool            `json:"optionalOldSelf"`
}

type loaded struct {
	env       *cel.Env
	variables map[string]any
	sizes     checker.CostEstimator
}

func (l loaded) evaluate(expression string) outcome.Outcome {
	return outcome.Evaluate(l.env, expression, l.variables, outcome.Options{Sizes: l.sizes})
}

func load(folder string) map[string]loaded {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	check(err)
	out := map[string]loaded{}
	for _, path := range files {
		content, err := os.ReadFile(path)
		check(err)
		var file environmentFile
		decoder := json.NewDecoder(bytes.NewReader(content))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&file); err != nil {
			check(fmt.Errorf("%s: %w", path, err))
		}
		one, err := file.load()
		if err != nil {
			check(fmt.Errorf("%s: %w", path, err))
		}
		out[strings.TrimSuffix(filepath.Base(path), ".json")] = one
	}
	return out
}

func (f environmentFile) load() (loaded, error) {
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	out := loaded{variables: map[string]any{}}
	options := environment.VersionedOptions{IntroducedVersion: version.MajorMinor(1, 0)}
	for name, variable := range f.Variables {
		t, rest, err := parseType(variable.Type)
		if err != nil || rest != "" {
			return out, fmt.Errorf("variable %s: cannot read type %q", name, variable.Type)
		}
		value, err := outcome.In(variable.Value)
		if err != nil {
			return out, fmt.Errorf("variable %s: %w", name, err)
		}
		options.EnvOptions = append(options.EnvOptions, cel.Variable(name, t))
		out.variables[name] = value
	}
	if f.Schema != nil {
		structural, err := structural(f.Schema)
		if err != nil {
			return out, err
		}
		// The server appends the nanoseconds of its clock.
		self := model.SchemaDeclType(structural, f.Root).MaybeAssignTypeName("selfType1")
		if f.Root {
			structural = model.WithTypeAndObjectMeta(structural)
		}
		oldSelf := self.CelType()
		if f.OptionalOldSelf {
			oldSelf = types.NewOptionalType(oldSelf)
		}
		options.EnvOptions = append(options.EnvOptions, cel.Variable("self", self.CelType()), cel.Variable("oldSelf", oldSelf))
		options.DeclTypes = append(options.DeclTypes, self)
		out.sizes = sizes{self}
		if out.variables["self"], err = value(f.Self, structural); err != nil {
			return out, fmt.Errorf("self: %w", err)
		}
		if f.OldSelf != nil {
			old, err := value(f.OldSelf, structural)
			if err != nil {
				return out, fmt.Errorf("oldSelf: %w", err)
			}
			out.variables["oldSelf"] = old
			if f.OptionalOldSelf {
				out.variables["oldSelf"] = types.OptionalOf(old)
			}
		} else if f.OptionalOldSelf {
			out.variables["oldSelf"] = types.OptionalNone
		}
	}
	set, err := base.Extend(options)
	if err != nil {
		return out, err
	}
	out.env = set.NewExpressionsEnv()
	return out, nil
}

func structural(raw json.RawMessage) (*schema.Structural, error) {
	var external apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal(raw, &external); err != nil {
		return nil, err
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&external, &internal, nil); err != nil {
		return nil, err
	}
	out, err := schema.NewStructural(&internal)
	if err != nil {
		return nil, err
	}
	// The root of a resource must be an object; ours may be any part of one.
	parent := &schema.Structural{Generic: schema.Generic{Type: "object"}, Properties: map[string]schema.Structural{"part": *out}}
	return out, schema.ValidateStructural(nil, parent).ToAggregate()
}

func value(raw json.RawMessage, s *schema.Structural) (ref.Val, error) {
	var object any
	// As the server decodes objects: integers are int64.
	if err := utiljson.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	return schemacel.UnstructuredToVal(object, s), nil
}

// sizes bounds the parts of self and oldSelf by their schema.
type sizes struct{ self *apiservercel.DeclType }

func (s sizes) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	path := node.Path()
	if len(path) == 0 {
		return nil
	}
	at := s.self
	for _, step := range path[1:] {
		switch step {
		case "@items", "@values":
			at = at.ElemType
		case "@keys":
			at = at.KeyType
		default:
			field, ok := at.Fields[step]
			if !ok {
				return nil
			}
			at = field.Type
		}
		if at == nil {
			return nil
		}
	}
	return &checker.SizeEstimate{Min: 0, Max: uint64(at.MaxElements)}
}

func (sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

var simpleTypes = map[string]*cel.Type{
	"dyn": cel.DynType, "bool": cel.BoolType, "int": cel.IntType, "uint": cel.UintType, "double": cel.DoubleType,
	"string": cel.StringType, "bytes": cel.BytesType, "timestamp": cel.TimestampType, "duration": cel.DurationType,
	"null_type": cel.NullType,
}

// parseType reads what cel-go prints for a type, like map(string, list(int)), and returns what follows it.
func parseType(text string) (*cel.Type, string, error) {
	end := strings.IndexAny(text, "(,)")
	if end < 0 {
		end = len(text)
	}
	name, rest := text[:end], text[end:]
	if t, ok := simpleTypes[name]; ok {
		return t, rest, nil
	}
	parameters := []*cel.Type{}
	for strings.HasPrefix(rest, "(") || strings.HasPrefix(rest, ", ") {
		t, after, err := parseType(strings.TrimLeft(rest, "(, "))
		if err != nil {
			return nil, "", err
		}
		parameters, rest = append(parameters, t), after
	}
	if !strings.HasPrefix(rest, ")") {
		return nil, "", fmt.Errorf("missing ) at %q", rest)
	}
	rest = rest[1:]
	switch {
	case name == "list" && len(parameters) == 1:
		return cel.ListType(parameters[0]), rest, nil
	case name == "map" && len(parameters) == 2:
		return cel.MapType(parameters[0], parameters[1]), rest, nil
	case name == "optional_type" && len(parameters) == 1:
		return cel.OptionalType(parameters[0]), rest, nil
	}
	return nil, "", fmt.Errorf("unknown type %s", name)
}
