package main

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/topodisk/topodisk/internal/escape"
)

// apiVersion of what --output=json and the like print.
const apiVersion = "topodisk.io/v1alpha1"

// output is the flags of what a command prints: kubectl's formats for programs, and text for people without --output or with one of
// the formats for people.
type output struct {
	flags  genericclioptions.PrintFlags
	people []string
}

func newOutput(people ...string) *output {
	return &output{genericclioptions.PrintFlags{
		OutputFormat:         new(string),
		JSONYamlPrintFlags:   genericclioptions.NewJSONYamlPrintFlags(),
		TemplatePrinterFlags: genericclioptions.NewKubeTemplatePrintFlags(),
	}, people}
}

// addFlags adds --output, --template and what belongs to them, and has them checked before the command runs.
func (o *output) addFlags(cmd *cobra.Command) {
	o.flags.TemplatePrinterFlags.AddFlags(cmd)
	cmd.Flags().VisitAll(func(flag *pflag.Flag) { // they are kubectl's old ways to say what --output says
		flag.Hidden = flag.Hidden || flag.Name == "template" || flag.Name == "allow-missing-template-keys"
	})
	formats := o.flags.AllowedFormats()
	cmd.Flags().StringVarP(o.flags.OutputFormat, "output", "o", "", "format for programs, one of "+strings.Join(formats, ", ")+"; without it, text for people")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // the flag was just added
	o.flags.OutputFlagSpecified = func() bool { return cmd.Flag("output").Changed }
	cmd.PreRunE = func(*cobra.Command, []string) error { return o.validate() }
}

// forPrograms says whether a format for programs is wanted.
func (o *output) forPrograms() bool {
	format := *o.flags.OutputFormat
	return !slices.Contains(o.people, format) && (format != "" || *o.flags.TemplatePrinterFlags.TemplateArgument != "")
}

func (o *output) validate() error {
	if !o.forPrograms() {
		return nil
	}
	_, err := o.flags.ToPrinter()
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		return usagef("--output=%s is not allowed: allowed are %s", *o.flags.OutputFormat, strings.Join(append(o.people, o.flags.AllowedFormats()...), ", "))
	}
	if err != nil {
		return &usageError{err}
	}
	return nil
}

// show prints an object: in the wanted format for programs, or as text, which writes it for people.
func (o *output) show(to io.Writer, kind string, object any, text func(io.Writer) error) error {
	if o.forPrograms() {
		return o.print(to, kind, object)
	}
	return text(to)
}

// print prints a pointer to a struct in the wanted format for programs, as an object of the kind.
func (o *output) print(to io.Writer, kind string, object any) error {
	printer, err := o.flags.ToPrinter()
	if err != nil {
		return err
	}
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &u.Object); err != nil {
		return err
	}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	switch format := *o.flags.OutputFormat; {
	case (format == "yaml" || format == "kyaml") && !escape.Is(string(text)): // they can't be escaped there, but JSON is YAML, too
		printer = &printers.JSONPrinter{}
	case !slices.Contains([]string{"json", "yaml", "kyaml"}, format) && !strings.HasPrefix(format, "jsonpath-as-json"): // a template shows values as they are
		u.Object, _ = escapedStrings(u.Object).(map[string]any)
	}
	return printer.PrintObj(u, to)
}

// escapedStrings returns a value of JSON with all its strings escaped.
func escapedStrings(value any) any {
	switch v := value.(type) {
	case string:
		return escape.Text(v)
	case []any:
		for i := range v {
			v[i] = escapedStrings(v[i])
		}
	case map[string]any:
		escaped := make(map[string]any, len(v))
		for key, inner := range v {
			escaped[escape.Text(key)] = escapedStrings(inner)
		}
		return escaped
	}
	return value
}
