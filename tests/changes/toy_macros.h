// Words of the portable kernels for a device that runs nothing: tests/changes_test.py.
#define F_TOY_DIALECT
