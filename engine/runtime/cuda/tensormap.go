//go:build cuda

package cuda

import "fmt"

// TensorMap is the 128 bytes of hardware descriptor of an array of three dimensions at byte offset of the memory: dims
// elements of 2 bytes, the first contiguous, the others strides bytes apart, of which a copy takes a box. Nothing is
// swizzled, and what lies outside reads as 0.
func (m *Mem) TensorMap(offset int64, dims [3]int64, strides [2]int64, box [3]int) ([]byte, error) {
	if err := m.inside("tensor map", offset, 2*dims[0]+(dims[1]-1)*strides[0]+(dims[2]-1)*strides[1]); err != nil {
		return nil, err
	}
	var out []byte
	err := m.use("tensor map", func() (err error) {
		out, err = tensorMap(uint64(m.ptr)+uint64(offset), dims, strides, box)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("dimensions %v, strides %v, box %v: %w", dims, strides, box, err)
	}
	return out, nil
}
