package findings

import "strconv"

// Units are those that sizes are typed in.
var Units = []string{"B", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}

// Size writes bytes the way sizes are typed: 1Gi, 512Mi, 1.5Gi.
func Size(n int64) string {
	if n < 0 {
		return "-" + Size(-n)
	}
	f, unit := float64(n), 0
	for f >= 1024 && unit < len(Units)-1 {
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
	return text + Units[unit]
}

// SizeText is Size for the decimal strings of volumes.
func SizeText(text string) string {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return text
	}
	return Size(n)
}

func bytesIn(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
