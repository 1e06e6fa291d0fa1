package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/termsafe"
)

func (a *app) templateCommand() *cobra.Command {
	cmd := group("template", "List and remove the templates that clients of E2B's SDKs built", `List and remove the templates that clients of E2B's SDKs built.

A template is an image. Only keys of its owner see it, and make sandboxes from it by its name. It outlives them: only "agbox template rm" and the API remove it.`)
	cmd.Aliases = []string{"templates"}
	cmd.AddCommand(a.templateListCommand(), a.templateRemoveCommand())
	return cmd
}

func (a *app) templateListCommand() *cobra.Command {
	var o *output
	cmd := &cobra.Command{
		Use: "ls [OWNER]", Aliases: []string{"list"}, Short: "List templates, of one owner or of all",
		Long: `List templates, newest first, of one owner or of all. STATE is that of the newest build; while it is not READY, an older one may serve
sandboxes. A size includes the image that the template was built from.`,
		Example: "  agbox template ls\n  agbox template ls ci -o wide",
		Args:    atMostOne("at most one owner"),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := a.conn().Templates(cmd.Context(), strings.Join(args, ""))
			if err != nil {
				return err
			}
			return a.showTemplates(all, o)
		},
	}
	o = outputFlag(cmd, append([]string{"wide", "yaml"}, listFormats...)...)
	return cmd
}

func (a *app) showTemplates(all []*agboxv1.Template, o *output) error {
	switch {
	case o.format == "name":
		for _, t := range all {
			fmt.Fprintln(a.Out, t.GetTemplateId())
		}
	case o.given():
		return printList(a, all, o)
	case len(all) == 0:
		fmt.Fprintln(a.Err, "no templates; Template.build of E2B's SDKs makes one")
	default:
		a.printTemplates(all, o.format == "wide")
	}
	return nil
}

func (a *app) printTemplates(all []*agboxv1.Template, wide bool) {
	t := &table{}
	header := []string{"TEMPLATE", "OWNER", "STATE", "BUILDS", "SIZE", "AGE"}
	if wide {
		header = append(header, "TEMPLATE ID", "IMAGE")
	}
	t.add(header...)
	for _, one := range all {
		state := strings.TrimPrefix(one.GetState().String(), "TEMPLATE_BUILD_STATE_")
		size := "-"
		if one.GetImage() != "" {
			size = bytesText(one.GetSizeBytes())
		}
		row := []string{
			termsafe.Line(one.GetName()), termsafe.Line(one.GetGatewayOwner()), state, strconv.Itoa(int(one.GetBuildCount())), size, age(one.GetUpdatedAt().AsTime(), time.Now()),
		}
		if wide {
			row = append(row, one.GetTemplateId(), dash(one.GetImage()))
		}
		t.add(row...)
	}
	t.write(a.Out)
}

func (a *app) templateRemoveCommand() *cobra.Command {
	var ignore bool
	cmd := &cobra.Command{
		Use: "rm TEMPLATE...", Aliases: []string{"remove", "delete"}, Short: "Remove templates, and cancel their builds",
		Long: `Remove templates with all their builds, for good. A build that runs is cancelled. A template from which a sandbox was made, in any state, is
refused: delete the sandbox first. TEMPLATE is a name or an ID; a name that several owners use is refused.`,
		Example: "  agbox template ls\n  agbox template rm my-app",
		Args:    atLeastOne(`the names of templates (see "agbox template ls")`), ValidArgsFunction: a.templateNames,
		RunE: func(cmd *cobra.Command, args []string) error { return a.removeTemplates(cmd.Context(), args, ignore) },
	}
	cmd.Flags().BoolVar(&ignore, "ignore-not-found", false, "a missing template is no error")
	return cmd
}

func (a *app) removeTemplates(ctx context.Context, refs []string, ignore bool) error {
	all, err := a.conn().Templates(ctx, "")
	if err != nil {
		return err
	}
	failed, err := forEach(ctx, refs, func(ref string) error {
		name := strings.TrimPrefix(ref, "template/")
		found := slices.DeleteFunc(slices.Clone(all), func(t *agboxv1.Template) bool { return t.GetName() != name && t.GetTemplateId() != name })
		missing := fmt.Errorf("template %q not found; \"agbox template ls\" lists them", name)
		switch {
		case len(found) > 1:
			return fmt.Errorf("%d owners have a template %s; write the ID, which \"agbox template ls -o wide\" shows", len(found), name)
		case len(found) == 0 && ignore:
			return nil
		case len(found) == 0:
			return missing
		}
		err := a.conn().RemoveTemplate(ctx, found[0].GetGatewayOwner(), found[0].GetTemplateId())
		switch {
		case err == nil:
			fmt.Fprintf(a.Out, "template/%s removed\n", name)
		case client.IsNotFound(err) && ignore:
			return nil
		case client.IsNotFound(err):
			return missing
		}
		return err
	}, func(_ string, err error) { a.complain(err) })
	if err != nil {
		return err
	}
	return outcomeOf(ctx, failed)
}

// templateNames completes the names of templates that are not on the line yet.
func (a *app) templateNames(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	all, err := a.conn().Templates(cmd.Context(), "")
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	for _, t := range all {
		if !slices.Contains(args, t.GetName()) {
			names = append(names, t.GetName())
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
