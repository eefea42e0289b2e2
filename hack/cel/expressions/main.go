// Evaluates our own expressions in the API server's environment, and prints the outcomes as JSON lines.
//
//	expressions LIST ENVIRONMENTS    folders with *.txt and *.json
//
// The README describes both formats.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"windlass.dev/cel-cases/outcome"
)

type testCase struct {
	Group       string `json:"group"`
	Environment string `json:"environment"`
	Expression  string `json:"expression"`
	outcome.Outcome
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: expressions LIST ENVIRONMENTS")
		os.Exit(2)
	}
	environments := load(os.Args[2])
	files, err := filepath.Glob(filepath.Join(os.Args[1], "*.txt"))
	check(err)
	lines := outcome.NewLines(os.Stdout)
	seen := map[[2]string]bool{}
	for _, path := range files {
		group := strings.TrimSuffix(filepath.Base(path), ".txt")
		content, err := os.ReadFile(path)
		check(err)
		environment := "none"
		for i, line := range strings.Split(string(content), "\n") {
			place := fmt.Sprintf("%s:%d", path, i+1)
			expressions, err := parse(line, &environment)
			if err != nil {
				check(fmt.Errorf("%s: %w", place, err))
			}
			env, known := environments[environment]
			if !known {
				check(fmt.Errorf("%s: no environment %q", place, environment))
			}
			for _, expression := range expressions {
				// Combinations overlap with single lines.
				if seen[[2]string{environment, expression}] {
					continue
				}
				seen[[2]string{environment, expression}] = true
				lines.Write(testCase{group, environment, expression, env.evaluate(expression)})
			}
		}
	}
	lines.Flush()
	fmt.Fprintf(os.Stderr, "expressions: %d cases\n", lines.Count)
}

// parse reads one line of a list: an expression, nothing, or a directive.
func parse(line string, environment *string) ([]string, error) {
	directive, argument, _ := strings.Cut(line, " ")
	switch {
	case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
		return nil, nil
	case directive == "@environment":
		*environment = argument
		return nil, nil
	case directive == "@json":
		var expression string
		err := json.Unmarshal([]byte(argument), &expression)
		return []string{expression}, err
	case directive == "@repeat":
		var parts struct {
			Count                 int
			Before, Middle, After string
		}
		err := json.Unmarshal([]byte(argument), &parts)
		return []string{strings.Repeat(parts.Before, parts.Count) + parts.Middle + strings.Repeat(parts.After, parts.Count)}, err
	case directive == "@each":
		return each(argument)
	case strings.HasPrefix(line, "@"):
		return nil, fmt.Errorf("unknown directive: %s", line)
	}
	return []string{line}, nil
}

// each expands a template for every combination of values: "$1 < $2" with one array of strings for each number.
func each(argument string) ([]string, error) {
	decoder := json.NewDecoder(strings.NewReader(argument))
	var template string
	if err := decoder.Decode(&template); err != nil {
		return nil, err
	}
	out := []string{template}
	for number := 1; decoder.More(); number++ {
		var values, next []string
		if err := decoder.Decode(&values); err != nil {
			return nil, err
		}
		name := fmt.Sprintf("$%d", number)
		if !strings.Contains(template, name) {
			return nil, fmt.Errorf("template has no %s: %s", name, template)
		}
		for _, partial := range out {
			for _, value := range values {
				next = append(next, strings.ReplaceAll(partial, name, value))
			}
		}
		out = next
	}
	return out, nil
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "expressions:", err)
		os.Exit(1)
	}
}
