package main

import (
	"slices"
	"testing"
)

func TestSlow(t *testing.T) {
	t.Parallel()
	wait := "wait\tTestC/F1\tthe volume\n"
	for _, tt := range []struct {
		name   string
		failed []string
		broken bool
		notes  string
		want   []slowTest
	}{
		{"nothing failed", nil, false, "", nil},
		{"a wait that ran out", []string{"TestC/F1", "TestC"}, false, wait, []slowTest{{"TestC/F1", "the volume"}}},
		{"its first wait is told", []string{"TestC/F1", "TestC"}, false, wait + "wait\tTestC/F1\tits end\n",
			[]slowTest{{"TestC/F1", "the volume"}}},
		{"another test failed for something else", []string{"TestC/F1", "TestC/F2", "TestC"}, false, wait, nil},
		{"data was lost too", []string{"TestC/F1", "TestC"}, false, wait + "final\tTestC/F1\tlost data\n", nil},
		{"the logs of the cluster have a panic", []string{"TestC/F1", "TestC"}, false, wait + "final\tTestC\ta panic\n", nil},
		{"the binary ended", []string{"TestC/F1", "TestC"}, true, wait, nil},
		{"no notes", []string{"TestC"}, false, "", nil},
		{"damaged notes", []string{"TestC/F1", "TestC"}, false, wait + "wait\n", nil},
	} {
		if got := slow(tt.failed, tt.broken, tt.notes); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
