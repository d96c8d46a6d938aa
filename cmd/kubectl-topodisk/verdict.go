package main

import (
	"fmt"
	"strings"

	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/internal/shell"
)

// What people are shown of a verdict: a headline, then a section for each thing that it says.

// section is a title with paragraphs beside it.
type section struct {
	title      string
	paragraphs []string
	commands   bool // which are not wrapped, so that they can be copied
}

// titleWidth is the width of the column of titles.
const titleWidth = 10

// printVerdict prints a verdict for people.
func printVerdict(s *screen, v *explain.Verdict) error {
	p := &page{on: s}
	p.addHeadline(v)
	for _, section := range sectionsOf(v) {
		p.addSection(section)
	}
	return p.show()
}

// addHeadline names the object, its state and the cause.
func (p *page) addHeadline(v *explain.Verdict) {
	p.addStyled(bold, v.Subject.String())
	switch v.State {
	case explain.Works:
		p.add(" ")
		p.addStyled(green, "does not wait")
	case explain.Waits:
		p.add(" ")
		p.addStyled(yellow, "waits: "+string(v.Cause))
	default:
		p.add(": ")
		p.addStyled(magenta, "unknown")
	}
	p.endLine()
	p.endLine()
}

// actorTexts say who must act.
var actorTexts = map[explain.Actor]string{
	explain.Nobody:       "nobody: it ends by itself",
	explain.User:         "whoever owns the Pod or claim",
	explain.ClusterAdmin: "whoever administers the cluster",
	explain.CloudAdmin:   "whoever administers the Alibaba Cloud account",
}

// sectionsOf returns the sections that have something to say.
func sectionsOf(v *explain.Verdict) []section {
	all := []section{
		{title: "Why", paragraphs: []string{v.Message}},
		{title: "Nodes", paragraphs: reasonTexts(v.Reasons)},
		{title: "Evidence", paragraphs: evidenceTexts(v.Evidence)},
		{title: "Answer", paragraphs: answerTexts(v.Error)},
		{title: "Who acts", paragraphs: []string{actorTexts[v.Actor]}},
		{title: "Next", paragraphs: commandTexts(v.Next), commands: true},
		{title: "Retried", paragraphs: []string{v.Retried}},
		{title: "Not read", paragraphs: unreadTexts(v.Missing)},
	}
	var said []section
	for _, s := range all {
		if len(s.paragraphs) > 0 && s.paragraphs[0] != "" {
			said = append(said, s)
		}
	}
	return said
}

// reasonTexts say why which nodes won't do.
func reasonTexts(reasons []explain.Reason) (texts []string) {
	for _, r := range reasons {
		nodes := "nodes"
		if r.Nodes == 1 {
			nodes = "node"
		}
		texts = append(texts, fmt.Sprintf("%d %s: %s (%s)", r.Nodes, nodes, r.Message, r.Cause))
	}
	return texts
}

func commandTexts(commands []shell.Command) (texts []string) {
	for _, c := range commands {
		texts = append(texts, c.String())
	}
	return texts
}

// maxValue is how many characters of a value people are shown; --output=yaml has all of it.
const maxValue = 300

func evidenceTexts(evidence []explain.Evidence) (texts []string) {
	for _, e := range evidence {
		value := e.Value
		if runes := []rune(value); len(runes) > maxValue {
			value = string(runes[:maxValue]) + "..."
		}
		if value == "" {
			value = "(none)"
		}
		texts = append(texts, fmt.Sprintf("%s %s = %s", e.Object, e.Field, value))
	}
	return texts
}

// answerTexts say what the driver or ECS answered, for a support ticket.
func answerTexts(e *explain.DriverError) []string {
	if e == nil {
		return nil
	}
	var parts []string
	for _, part := range []struct{ label, value string }{{"gRPC code ", e.Code}, {"ECS action ", e.Action}, {"ECS code ", e.ECSCode},
		{"request ID ", e.RequestID}} {
		if part.value != "" {
			parts = append(parts, part.label+part.value)
		}
	}
	return []string{strings.Join(parts, ", ")}
}

func unreadTexts(unread []explain.Unread) (texts []string) {
	for _, u := range unread {
		where := ""
		if u.Namespace != "" {
			where = " of namespace " + u.Namespace
		}
		texts = append(texts, u.Kind+where+": "+u.Reason)
	}
	return texts
}

// addSection adds a section, its title in the first column.
func (p *page) addSection(of section) {
	title := fmt.Sprintf("%-*s", titleWidth, of.title)
	for _, paragraph := range of.paragraphs {
		lines := []string{paragraph}
		if !of.commands {
			lines = p.on.wrap(paragraph, titleWidth+hanging)
		}
		for i, line := range lines {
			p.addStyled(faint, title)
			if i > 0 {
				p.add(strings.Repeat(" ", hanging))
			}
			p.add(line)
			p.endLine()
			title = strings.Repeat(" ", titleWidth)
		}
	}
}

// hanging is how far the further lines of a paragraph are indented.
const hanging = 2
