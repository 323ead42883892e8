package naming

import (
	"slices"
	"testing"
)

func TestTags(t *testing.T) {
	given := []string{"ssd", "fast", "ssd"}
	if got := Tags(given); !slices.Equal(got, []string{"fast", "ssd"}) || given[0] != "ssd" {
		t.Errorf("%v of %v", got, given)
	}
	if got := Tags(nil); got == nil || len(got) != 0 {
		t.Errorf("no tags: %v", got)
	}
	for tag, ok := range map[string]bool{"ssd": true, "a.b/c-d": true, "": false, "two words": false, "-x": false} {
		if (len(TagProblems(tag)) == 0) != ok {
			t.Errorf("tag %q: %v", tag, TagProblems(tag))
		}
	}
}
