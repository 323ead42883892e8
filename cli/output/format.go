package output

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ankole.storage/cli/usage"
	"ankole.storage/rest/findings"
)

// FirstText is the first text that is not empty.
func FirstText(all ...string) string {
	for _, s := range all {
		if s != "" {
			return s
		}
	}
	return ""
}

// Count is a number with its noun.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// OrUnknown is a text, or the word for none.
func OrUnknown(s string) string { return FirstText(s, "unknown") }

// Size writes bytes the way sizes are typed: 1Gi, 512Mi, 1.5Gi; as texts of the API do.
func Size(n int64) string { return findings.Size(n) }

// SizeText is Size for the decimal strings of volumes.
func SizeText(text string) string { return findings.SizeText(text) }

// createdForm is the form of creation times of volumes.
const createdForm = "2006-01-02 15:04:05 -0700 MST"

// moment reads a time as the API writes it.
func moment(text string) (time.Time, error) {
	t, err := time.Parse(createdForm, text)
	if err != nil {
		return time.Parse(time.RFC3339, text)
	}
	return t, nil
}

// AgeSeconds is how long ago a time was; infinite for what is no time.
func AgeSeconds(text string, now time.Time) float64 {
	t, err := moment(text)
	if err != nil {
		return math.Inf(1)
	}
	return max(now.Sub(t), 0).Seconds()
}

// Age writes how long ago a time of a volume was, in its largest unit.
func Age(text string, now time.Time) string {
	t, err := moment(text)
	if err != nil {
		return text
	}
	d := max(now.Sub(t), 0)
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd", int(d.Hours())/24)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	case d >= 2*time.Minute:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	}
	return fmt.Sprintf("%ds", int(d.Seconds()))
}

// YesNo is a truth value for people.
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// BytesIn reads the decimal strings of volumes; what is none counts as 0.
func BytesIn(text string) float64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return float64(n)
}

// ParseBytes reads a size such as 10Gi or 1073741824.
func ParseBytes(text string) (int64, error) {
	number, unit := strings.TrimSpace(text), int64(1)
	for i, u := range findings.Units[1:] {
		if rest, ok := strings.CutSuffix(strings.TrimSuffix(number, "B"), u); ok {
			number, unit = rest, int64(1)<<(10*(i+1))
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n <= 0 || n > (1<<63-1)/unit {
		return 0, usage.Errorf("size %q: give bytes, or a whole number with Ki, Mi, Gi or Ti", text)
	}
	return n * unit, nil
}

// AddStructured adds -o json|yaml to a command whose table is no list of objects.
func AddStructured(c *cobra.Command, output *string) {
	formats := []string{JSON, YAML}
	c.Flags().StringVarP(output, "output", "o", Plain, "format: "+strings.Join(formats, ", ")+" (default text)")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	c.PreRunE = func(*cobra.Command, []string) error {
		if *output != Plain && !slices.Contains(formats, *output) {
			return usage.Errorf("unknown output format %q; use one of %s", *output, strings.Join(formats, ", "))
		}
		return nil
	}
}

// SortedKeys are the keys of a map in their order.
func SortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
