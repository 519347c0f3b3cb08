"""Pictures of programs and plans as one self-contained page: `page.page(sheet)` puts the chapters together.

Data of levels 0 to 3 goes in (`sheet.py`), text comes out; nothing here plans, judges or runs.
"""
