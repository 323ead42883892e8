package main

import (
	"bytes"
	"os"
	"testing"
)

func TestTypesAreFresh(t *testing.T) {
	want, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../../zz_generated.volumefields.go")
	if err != nil || !bytes.Equal(have, want) {
		t.Errorf("rest/resource/zz_generated.volumefields.go is stale (%v): make generate", err)
	}
}
