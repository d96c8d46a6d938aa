package golden

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDisagreement(t *testing.T) {
	const english = "Set `type` to 20 GiB in June 2020, see [parameters](parameters.md#types)."
	for name, test := range map[string]struct{ chinese, want string }{
		"same":          {"在 2020 年 6 月将 `type` 设为 20 GiB，请参见[参数](../zh/parameters.md#类型)。", ""},
		"other code":    {"在 2020 年 6 月将 `types` 设为 20 GiB，请参见[参数](parameters.md)。", "code [\"type\"], in Chinese [\"types\"]"},
		"other number":  {"在 2020 年 6 月将 `type` 设为 40 GiB，请参见[参数](parameters.md)。", "numbers [\"20\" \"2020\"], in Chinese [\"2020\" \"40\"]"},
		"lacks a link":  {"在 2020 年 6 月将 `type` 设为 20 GiB。", "links [\"parameters.md\"], in Chinese []"},
		"leads astray":  {"在 2020 年 6 月将 `type` 设为 20 GiB，请参见[参数](errors.md)。", "links [\"parameters.md\"], in Chinese [\"errors.md\"]"},
		"twice is once": {"将 `type`（`type`）在 2020 年 6 月设为 20 GiB，请参见[参数](parameters.md)。", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Disagreement(english, test.chinese); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestDictionaryTranslatesAPage(t *testing.T) {
	const english = "# Title\n\nA paragraph\nof two lines.\n\n    code\n\n| Name | Rule | Why |\n|---|---|---|\n| `a`, `b` | A rule | none |\n| two words | A rule |  |\n"
	d := dictionary{used: map[string]bool{}, missing: map[string]bool{}, chinese: map[string]string{
		"Title": "标题", "A paragraph of two lines.": "一段。", "Name": "名称", "Rule": "出处", "Why": "原因", "none": "无", "unused": "多余",
	}}
	const want = "# 标题\n\n一段。\n\n    code\n\n| 名称 | 出处 | 原因 |\n|---|---|---|\n| `a`, `b` | A rule | 无 |\n|  | A rule |  |\n"
	if diff := cmp.Diff(want, d.page(english, []string{"Rule"})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if missing := slices.Collect(maps.Keys(d.missing)); !slices.Equal(missing, []string{"two words"}) || d.used["unused"] {
		t.Errorf("missing are %q, used are %v", missing, d.used)
	}
}
