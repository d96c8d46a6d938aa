package plan

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/topodisk/topodisk/internal/escape"
)

// mostNames is how many objects of one kind and one message are named in text. JSON and YAML name all.
const mostNames = 5

// sections are the effects in the order of the text, with their headings.
var sections = []struct {
	effect  Effect
	heading string
}{
	{Blocks, "Stands against it:"},
	{Refused, "topodisk would refuse:"},
	{Waits, "Would wait:"},
	{Deleted, "Would be lost:"},
	{Elsewhere, "Would go elsewhere:"},
	{Note, "Stays as it is, and may surprise:"},
}

// WriteText prints the plan for people: the summary, and a section for each thing that there is to say.
func (p *Plan) WriteText(to io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s.\n", escape.Text(capitalized(p.Summary)))
	p.writeServing(&b)
	for _, section := range sections {
		p.writeFindings(&b, section.effect, section.heading)
	}
	writeSteps(&b, "What to do, in this order:", p.Steps)
	writeSteps(&b, "The way back:", p.Back)
	if len(p.NotChecked) > 0 {
		b.WriteString("\nNot checked:\n")
		for _, u := range p.NotChecked {
			fmt.Fprintf(&b, "  %s: %s\n", escape.Text(u.What), escape.Text(u.Why))
		}
	}
	_, err := io.WriteString(to, b.String())
	return err
}

// capitalized returns a text with a capital at its beginning, but for the name of the project.
func capitalized(text string) string {
	if strings.HasPrefix(text, "topodisk ") {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

func (p *Plan) writeServing(b *strings.Builder) {
	if len(p.Serving) == 0 {
		return
	}
	b.WriteString("\nServes volumes and snapshots today:\n")
	table := tabwriter.NewWriter(b, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, "  KIND\tNAME\tSERVES\tCONTAINERS\tMANAGED BY")
	for _, s := range p.Serving {
		writeRow(table, s.Object.Kind, s.Object.FullName(), orNone(strings.Join(shortNames(s.Serves), ",")),
			strconv.Itoa(len(s.Containers)), orNone(s.ManagedBy))
	}
	_ = table.Flush()
}

// writeRow writes a row of a table.
func writeRow(table io.Writer, cells ...string) {
	for i := range cells {
		cells[i] = escape.Text(cells[i])
	}
	_, _ = fmt.Fprintf(table, "  %s\n", strings.Join(cells, "\t"))
}

func orNone(text string) string {
	if text == "" {
		return "<none>"
	}
	return text
}

// row is what a table says of the objects of one kind that have one message.
type row struct {
	kind, message string
	names         []string
}

// rows groups the findings of an effect, in the order of the first of each group.
func (p *Plan) rows(effect Effect) []*row {
	var rows []*row
	byKey := map[[2]string]*row{}
	for _, f := range p.Findings {
		if f.Effect != effect {
			continue
		}
		key := [2]string{f.Object.Kind, f.Message}
		if byKey[key] == nil {
			byKey[key] = &row{kind: f.Object.Kind, message: f.Message}
			rows = append(rows, byKey[key])
		}
		byKey[key].names = append(byKey[key].names, f.Object.FullName())
	}
	return rows
}

func (p *Plan) writeFindings(b *strings.Builder, effect Effect, heading string) {
	rows := p.rows(effect)
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", heading)
	table := tabwriter.NewWriter(b, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, "  KIND\tNAME\tWHY")
	for _, r := range rows {
		writeRow(table, r.kind, list(r.names, mostNames), r.message)
	}
	_ = table.Flush()
}

func writeSteps(b *strings.Builder, heading string, steps []Step) {
	if len(steps) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", heading)
	for i, s := range steps {
		fmt.Fprintf(b, "  %d. %s.\n", i+1, escape.Text(s.Title))
		if s.ByHand != "" {
			fmt.Fprintf(b, "     %s\n", escape.Text(s.ByHand))
		}
		for _, command := range s.Commands {
			fmt.Fprintf(b, "       %s\n", strings.ReplaceAll(command.String(), "\n", "\n       "))
		}
	}
}
