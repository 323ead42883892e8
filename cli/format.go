package cli

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

var units = []string{"B", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}

// size writes bytes the way sizes are typed: 1Gi, 512Mi, 1.5Gi.
func size(n int64) string {
	if n < 0 {
		return "-" + size(-n)
	}
	f, unit := float64(n), 0
	for f >= 1024 && unit < len(units)-1 {
		f /= 1024
		unit++
	}
	if unit == 0 {
		return strconv.FormatInt(n, 10)
	}
	text := strconv.FormatFloat(f, 'f', 1, 64)
	if len(text) > 2 && text[len(text)-2:] == ".0" {
		text = text[:len(text)-2]
	}
	return text + units[unit]
}

// sizeText is size for the decimal strings of volumes.
func sizeText(text string) string {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return text
	}
	return size(n)
}

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

// ageSeconds is how long ago a time was; infinite for what is no time.
func ageSeconds(text string, now time.Time) float64 {
	t, err := moment(text)
	if err != nil {
		return math.Inf(1)
	}
	return max(now.Sub(t), 0).Seconds()
}

// age writes how long ago a time of a volume was, in its largest unit.
func age(text string, now time.Time) string {
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

// yesNo is a truth value for people.
func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// bytesIn reads the decimal strings of volumes; what is none counts as 0.
func bytesIn(text string) float64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return float64(n)
}
