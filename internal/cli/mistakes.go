package cli

import (
	"errors"
	"fmt"
	"slices"

	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/manifest"
)

// complainOfText prints all mistakes of a text except the last, one per line, and returns the last.
func (a *app) complainOfText(label string, mistakes manifest.Errors) error {
	last := len(mistakes) - 1
	for _, one := range mistakes[:last] {
		a.complain(fmt.Errorf("%s: %w", label, one))
	}
	return fmt.Errorf("%s: %w", label, mistakes[last])
}

// rules returns the rules that a document breaks, except those that only the daemon can check.
func (d document) rules() validate.Errors {
	if d.Agent != nil {
		return slices.Concat(validate.Name(d.Name), validate.Agent(d.Agent))
	}
	return slices.Concat(validate.Name(d.Name), validate.NameOfService(d.Name, d.Spec), validate.Create(d.Spec))
}

// complainOf prints the mistakes of a document: one line per broken rule, with the line number of the field.
func (a *app) complainOf(d document, err error) {
	var refused *client.Error
	var broken validate.Errors
	switch {
	case errors.As(err, &broken):
	case errors.As(err, &refused) && client.IsInvalidArgument(err):
		for _, f := range refused.Fields {
			broken = append(broken, validate.Error{Field: f.Field, Message: f.Message})
		}
		if all := d.rules(); len(all) > len(broken) {
			broken = all // an answer of the daemon has only a few
		}
	}
	if len(broken) == 0 {
		a.complain(fmt.Errorf("%s %s (%s, line %d): %w", d.kind(), d.Name, d.file, d.Line, err))
	}
	for _, one := range broken {
		a.complain(fmt.Errorf("%s %s (%s, line %d): %w", d.kind(), d.Name, d.file, d.LineOf(one.Field), one))
	}
}
