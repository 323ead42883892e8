package offline

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/mattn/go-runewidth"

	"ankole.storage/cli/output"
	"ankole.storage/dataplane/offline"
)

// textWidth is where sentences are broken.
const textWidth = 100

var layerColumns = []output.Column[offline.Layer]{
	{Header: "LAYER", Value: func(l offline.Layer) string { return l.Name }},
	{Header: "PARENT", Value: func(l offline.Layer) string { return l.Parent }},
	{Header: "SIZE", Right: true, Value: func(l offline.Layer) string { return output.Size(l.SizeBytes) }},
	{Header: "ALLOCATED", Right: true, Value: func(l offline.Layer) string { return output.Size(l.AllocatedBytes) }},
	{Header: "CREATED", Value: func(l offline.Layer) string { return l.Created }},
	{Header: "KIND", Value: layerKind},
	{Header: "LABELS", Value: func(l offline.Layer) string { return labelText(l.Labels) }},
}

// layerKind says in a few words what a layer is.
func layerKind(l offline.Layer) string {
	words := []string{"system"}
	switch {
	case l.Name == offline.Head:
		words[0] = "head"
	case l.UserCreated:
		words[0] = "user"
	}
	if l.Removed {
		words = append(words, "removed")
	}
	if !l.Live {
		words = append(words, "other branch")
	}
	if l.Checksum {
		words = append(words, "checksum")
	}
	return strings.Join(words, ", ")
}

func labelText(labels map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, k+"="+labels[k])
	}
	return strings.Join(out, ",")
}

// writeReport prints what Inspect found.
func writeReport(w io.Writer, r *offline.Report) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-18s%s\n", name, output.OneLine(fmt.Sprintf(format, args...)))
	}
	line("Directory", "%s", r.Directory)
	line("State", "%s", r.State)
	if r.VolumeSizeBytes > 0 {
		line("Volume size", "%s (%d bytes)", output.Size(r.VolumeSizeBytes), r.VolumeSizeBytes)
		line("Head", "%s", r.Head)
	}
	if r.BackingFile != "" {
		line("Backing file", "%s", r.BackingFile)
	}
	if r.Encrypted {
		line("Encrypted", "yes")
	}
	if r.RevisionCounter != nil {
		line("Revision counter", "%d", *r.RevisionCounter)
	}
	writeMembership(line, r)
	b.WriteByte('\n')
	for _, s := range r.Explanation {
		b.WriteString(wrap(output.OneLine(s), "", textWidth))
	}
	if len(r.Layers) > 0 {
		b.WriteByte('\n')
		if err := output.Write(&b, layerColumns, r.Layers, false); err != nil {
			return err
		}
	}
	writeProblems(&b, r.Problems)
	_, err := io.WriteString(w, b.String())
	return err
}

func writeMembership(line func(name, format string, args ...any), r *offline.Report) {
	m := r.Membership
	switch {
	case r.State == offline.StateEmpty:
		return
	case !m.Known:
		line("Membership", "void")
		return
	}
	line("Volume UUID", "%s", output.OrDash(m.VolumeUUID))
	line("Generation", "%d, proposed in epoch %d", m.Generation, m.Epoch)
	line("Promised epoch", "%d, to engine %s", m.Promised, output.OrDash(m.Engine))
	line("Own name", "%s (%s)", output.OrDash(m.Self), m.State)
	var names []string
	for _, one := range m.Members {
		text := one.Name
		if one.Flags != 0 {
			text += " [flags " + strconv.Itoa(int(one.Flags)) + "]"
		}
		names = append(names, text)
	}
	line("Members", "%s", output.OrDash(strings.Join(names, ", ")))
	if d := r.DirtyRegions; d.Known {
		line("Dirty regions", "%d", len(d.Regions))
	} else {
		line("Dirty regions", "all")
	}
}

func writeProblems(b *strings.Builder, problems []offline.Problem) {
	if len(problems) == 0 {
		return
	}
	b.WriteByte('\n')
	for _, p := range problems {
		b.WriteString(wrap(output.OneLine(fmt.Sprintf("%s: %s: %s", p.Severity, p.Object, p.Text)), "    ", textWidth))
	}
}

// wrap breaks a sentence into lines of at most width columns; a longer word stands alone. All lines
// but the first are indented.
func wrap(text, indent string, width int) string {
	var b strings.Builder
	at := 0
	for i, word := range strings.Fields(text) {
		n := runewidth.StringWidth(word)
		switch {
		case i == 0:
		case at+1+n > width:
			b.WriteString("\n" + indent)
			at = len(indent)
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	b.WriteByte('\n')
	return b.String()
}

var fileColumns = []output.Column[offline.FileCheck]{
	{Header: "LAYER", Value: func(f offline.FileCheck) string { return f.Name }},
	{Header: "READ", Right: true, Value: func(f offline.FileCheck) string { return output.Size(f.ReadBytes) }},
	{Header: "CHECKSUM", Value: func(f offline.FileCheck) string { return string(f.Checksum) }},
}

var comparedColumns = []output.Column[offline.Comparison]{
	{Header: "SNAPSHOT", Value: func(c offline.Comparison) string { return c.Snapshot }},
	{Header: "RESULT", Value: comparisonText},
	{Header: "DIFFERING", Right: true, Value: func(c offline.Comparison) string {
		if c.In != offline.InBoth {
			return ""
		}
		return output.Size(c.DifferingBytes)
	}},
	{Header: "FIRST AT", Value: func(c offline.Comparison) string {
		if len(c.Ranges) == 0 {
			return ""
		}
		return strconv.FormatInt(c.Ranges[0].Off, 10)
	}},
}

func comparisonText(c offline.Comparison) string {
	switch {
	case c.In == offline.InFirst:
		return "only in the first"
	case c.In == offline.InSecond:
		return "only in the second"
	case c.Equal:
		return "equal"
	case c.SizeBytes != c.OtherSizeBytes:
		return fmt.Sprintf("sizes differ: %s, %s", output.Size(c.SizeBytes), output.Size(c.OtherSizeBytes))
	case c.Explained:
		return "differs, in unflushed writes only"
	}
	return "differs"
}

// writeCheck prints what a check found.
func writeCheck(w io.Writer, r checkResult) error {
	var b strings.Builder
	for i, one := range []*offline.CheckReport{r.CheckReport, r.Other} {
		if one == nil {
			continue
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(output.OneLine(one.Directory) + ": " + verdict(one) + "\n")
		writeProblems(&b, one.Problems)
		if len(one.Files) > 0 {
			b.WriteByte('\n')
			if err := output.Write(&b, fileColumns, one.Files, false); err != nil {
				return err
			}
		}
	}
	if len(r.Compared) > 0 {
		b.WriteByte('\n')
		if err := output.Write(&b, comparedColumns, r.Compared, false); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// verdict counts problems by severity.
func verdict(r *offline.CheckReport) string {
	var words []string
	for _, s := range []offline.Severity{offline.Error, offline.Warning, offline.Note} {
		n := 0
		for _, p := range r.Problems {
			if p.Severity == s {
				n++
			}
		}
		if n == 1 {
			words = append(words, "1 "+string(s))
		} else if n > 1 {
			words = append(words, fmt.Sprintf("%d %ss", n, s))
		}
	}
	if len(words) == 0 {
		return "nothing wrong"
	}
	return strings.Join(words, ", ")
}
