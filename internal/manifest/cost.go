package manifest

// What parsing takes in memory at most, as measured with texts of one repeated mark each: for each byte, and for each line and
// each mark of YAML.
const (
	costOfByte = 25
	costOfMark = 700
)

// ParseCost returns what parsing a text may take in memory, in bytes. It does not parse: what looks like a mark inside a quoted
// value counts too.
func ParseCost(text []byte) int64 {
	marks := int64(0)
	for i, c := range text {
		switch c {
		case '\n', '\r', '[', ']', '{', '}', ',', '#', '&', '*', '!', '|', '>', '%', '@', '`', '?', '"', '\'':
			marks++
		case ':', '-': // within words they are nothing
			if i+1 == len(text) || text[i+1] <= ' ' {
				marks++
			}
		}
	}
	return costOfByte*int64(len(text)) + costOfMark*marks
}
