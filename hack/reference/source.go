package main

import (
	"fmt"
	"os"
	"regexp"
)

// constant is one string constant of a type.
type constant struct{ Value, Comment string }

// constantsOf returns the constants of a type with their comments, in the order of a file that gofmt has written.
func constantsOf(path, typeName string) ([]constant, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	line := regexp.MustCompile(`(?m)^\s+\w+\s+` + typeName + `\s+= "([^"]*)"(?: +// (.*))?$`)
	var list []constant
	for _, m := range line.FindAllStringSubmatch(string(text), -1) {
		list = append(list, constant{m[1], m[2]})
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s has no constant of type %s", path, typeName)
	}
	return list, nil
}
