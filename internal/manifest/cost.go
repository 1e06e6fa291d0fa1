package manifest

// Upper bounds of the memory, in bytes, that parsing allocates for each byte of a text, and for each line and each YAML mark. They were
// measured with texts that repeat one mark.
const (
	costOfByte = 25
	costOfMark = 700
)

// ParseCost returns an upper bound of the memory, in bytes, that parsing a text allocates. It does not parse, so it also counts characters
// inside quoted values that look like marks.
func ParseCost(text []byte) int64 {
	marks := int64(0)
	for i, c := range text {
		switch c {
		case '\n', '\r', '[', ']', '{', '}', ',', '#', '&', '*', '!', '|', '>', '%', '@', '`', '?', '"', '\'':
			marks++
		case ':', '-': // no marks within words
			if i+1 == len(text) || text[i+1] <= ' ' {
				marks++
			}
		}
	}
	return costOfByte*int64(len(text)) + costOfMark*marks
}
