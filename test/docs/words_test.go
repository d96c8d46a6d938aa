package docs_test

import (
	"regexp"
	"strings"
	"testing"
)

// instead has phrases that read like a translation, as patterns, and what Kubernetes' and Prometheus' docs say.
var instead = map[string]string{
	`anew`:                              "again, or a new one",
	`(take[sn]?|took) (it |them )?away`: "remove, uninstall or detach",
	`mend(s|ed|ing)?`:                   "fix",
	`whoever`:                           "somebody who, or the name of the role",
	`(to )?be had`:                      "available",
	`for want of`:                       "without, or for lack of",
	`in the midst`:                      "during",
	`heeds?`:                            "reads, or follows",
	`dear(er|est)?`:                     "expensive",
	`goes by`:                           "uses",
	`comes? upon`:                       "finds",
	`the end of it all`:                 "deletion",
	`in the place of`:                   "instead of",
	`tried again`:                       "retried",
	`unless given`:                      "by default",
	`nobody owns`:                       "without an owner",
	`for ever`:                          "forever",
	`what becomes of`:                   "what happens to",
	`what there is`:                     "what exists",
	`yes is true`:                       "yes, or true",
	`nobody's`:                          "without an owner",
	`stand-by`:                          "standby",
	`all the same`:                      "anyway",
	`by way of`:                         "through",
	`needn't`:                           "does not have to",
	`kindly|simply|obviously|easily`:    "(nothing)",
}

var code = regexp.MustCompile("(?ms)^```.*?^```$|`[^`\n]*`|<!--.*?-->|\\]\\([^)]*\\)")

// U13: the English pages say things as Kubernetes' docs do.
func TestPagesArePlainEnglish(t *testing.T) {
	for page, text := range pages(t) {
		if strings.HasPrefix(page, "docs/zh/") {
			continue
		}
		// What is cut out leaves its lines, so that a finding has its number.
		text = code.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) })
		for phrase, better := range instead {
			for _, at := range regexp.MustCompile(`(?i)\b(`+strings.ReplaceAll(phrase, " ", `\s+`)+`)\b`).FindAllStringIndex(text, -1) {
				t.Errorf("%s:%d: %q; better: %s", page, 1+strings.Count(text[:at[0]], "\n"), text[at[0]:at[1]], better)
			}
		}
	}
}
