package cli

import (
	"strings"
	"testing"
)

func TestSelectors(t *testing.T) {
	labels := map[string]string{"team": "a", "tier": "web", "empty": "", "a/b c": "x=y", "k,": "v,"}
	for text, want := range map[string]bool{
		"team=a": true, "team==a": true, "team = a": true, "team=b": false, "team!=a": false, "team!=b": true, "none!=a": true, "none=a": false,
		"team in (a)": true, "team in (b,a)": true, "team in ( b , a )": true, "team in (b)": false, "none in (a)": false, "team in(a)": true,
		"team notin (b)": true, "team notin (a, b)": false, "none notin (a)": true,
		"team": true, "none": false, "!team": false, "!none": true, "! none": false,
		"team=a,tier=web": true, "team=a,tier=db": false, "team in (a,b),tier!=db,!none": true, "team=a,team=a": true,
		"empty=": true, "team=": false, "empty": true, "a/b c=x=y": true, `"k,"="v,"`: true, `"k,"="w,"`: false, `"k,"`: true, `!"k,"`: false,
		"in": false, "notin=x": false,
	} {
		s := &selector{}
		if err := s.Set(text); err != nil {
			if text != "! none" {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		if got := s.matches(labels); got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
		if equal, whole := s.equal(); whole && (&selector{all: s.all}).matches(equal) == false {
			t.Errorf("%s: %v is not what it selects", text, equal)
		}
	}
}

func TestSelectorsThatDoNotParse(t *testing.T) {
	for _, text := range []string{
		"", ",", "a=b,", ",a", "=a", "!=a", "!", "team in", "team in a", "team in ()", "team in (a", "team in a)", "team in (a,)", "team notin", "a b",
		"team in (a) x", "(a)", "team=a,team=b", `"a`, `a="b`, "a in (b),c d", "!!a", "!a in (b)",
	} {
		s := &selector{}
		if err := s.Set(text); err == nil {
			t.Errorf("%q: got %+v", text, s.all)
		} else if !strings.Contains(err.Error(), "key") && !strings.Contains(err.Error(), "two values") {
			t.Errorf("%q: %v does not say what to write", text, err)
		}
	}
}
